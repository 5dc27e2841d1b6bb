"""The documentation site: whole, strict, and loading nothing from elsewhere."""

import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from typing import Any

import pytest
import yaml

import changefeed
import changefeed.backends
import changefeed.testing
from changefeed.runtime.settings_schema import names
from tests.support.processes import ended
from tests.support.settings_page import MODELS

ROOT = Path(__file__).parents[3]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
MADE = re.search(r"/mkdocs (build .*)\$\(ARGS\)", (ROOT / "Makefile").read_text())
TABLE = re.compile(r"^\|[-|]+\|$", re.MULTILINE)
ITEM = re.compile(r"^(?:[*-]|\d+\.) ", re.MULTILINE)
LOADED = re.compile(
    r'<(?:script|img|iframe|link rel="(?:stylesheet|preconnect)")[^>]*"https?://'
)


def build(root: Path, to: Path) -> CompletedProcess[str]:
    """Build as ``make site`` does."""
    assert MADE is not None
    command = (sys.executable, "-m", "mkdocs", *MADE[1].split(), "--site-dir", to)
    return ended(*command, cwd=root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    built = build(ROOT, place)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return place


def leaves(nav: Any) -> list[str]:
    """Return the pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for x in entries for page in leaves(x)]


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    pages = leaves(CONFIG["nav"])
    docs = {x.relative_to(ROOT / "docs").as_posix() for x in (ROOT / "docs").rglob("*.md")}
    assert sorted(docs - set(pages)) == []
    assert len(pages) == len(set(pages))


def test_each_page_has_the_tables_and_lists_of_its_text(site: Path) -> None:
    wrong = []
    for file in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", file.read_text(), flags=re.DOTALL | re.MULTILINE)
        page = (site / file.relative_to(ROOT / "docs")).with_suffix(".html")
        html = (page.with_name("index.html") if file.name == "README.md" else page).read_text()
        article = html[html.index("<article") : html.index("</article>")]
        found = (article.count("<table>"), article.count("<li>"))
        if found != (len(TABLE.findall(text)), len(ITEM.findall(text))):
            wrong.append(file.name)
    assert wrong == []


def test_the_index_is_the_readme_and_linked_sources_are_pages(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert "A change feed processor for Python." in index
    assert 'href="getting-started.html"' in index
    assert 'href="source/samples/hello/greeting.py.html"' in index
    assert "greet" in (site / "source/samples/hello/greeting.py.html").read_text()


@pytest.mark.parametrize("module", [changefeed, changefeed.backends, changefeed.testing])
def test_the_page_of_the_api_has_all_that_is_promised(site: Path, module: ModuleType) -> None:
    headings = re.findall(r'<h3 id="[^"]+"><code>(\w+)</code>', (site / "api.html").read_text())
    assert set(module.__all__) <= set(headings)


@pytest.mark.parametrize("part", MODELS)
def test_the_page_of_settings_has_each_of_them(site: Path, part: str) -> None:
    text = (site / "settings.html").read_text().partition(f'<h2 id="{part.lower()}">')[2]
    known = set(names(MODELS[part]))
    shown = {x for x in known if f"<code>{x[-1]}</code>" in text.partition("<h2 ")[0]}
    assert {x for x in known - shown if not x[-1].endswith("_file")} == set()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [x.name for x in pages if LOADED.search(x.read_text())] == []
    assert [x.name for x in site.rglob("*.css") if "url(http" in x.read_text()] == []
