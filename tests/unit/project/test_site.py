"""The documentation site: whole, strict, and loading nothing from elsewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
MADE = re.search(r"/mkdocs (build .*)\$\(ARGS\)", (ROOT / "Makefile").read_text())
TABLE = re.compile(r"^\|[-|]+\|$", re.MULTILINE)
ITEM = re.compile(r"^(?:[*-]|\d+\.) ", re.MULTILINE)
LOADED = re.compile(
    r'<(?:script|img|iframe|link rel="(?:stylesheet|preconnect)")[^>]*"https?://'
)


def build(root: Path, to: Path) -> subprocess.CompletedProcess[str]:
    """Build as ``make site`` does."""
    assert MADE is not None
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", *MADE[1].split(), "--site-dir", str(to)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


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


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [x.name for x in pages if LOADED.search(x.read_text())] == []
    assert [x.name for x in site.rglob("*.css") if "url(http" in x.read_text()] == []


def small_project(root: Path, link: str, *, nav: bool = True) -> Path:
    """Make a project with the site's own settings, and two pages."""
    config = {**CONFIG, "nav": ["index.md", *(["page.md"] if nav else [])]}
    (root / "docs").mkdir()
    (root / "mkdocs.yml").write_text(yaml.safe_dump(config))
    (root / "README.md").write_text("# Small\n\n[page](docs/page.md)\n")
    (root / "docs/page.md").write_text(f"# Page\n\n## One, two\n\n[there]({link})\n")
    (root / "code.py").write_text("x = 1\n")
    (root / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/site_pages.py", root / ".ci")
    return root


def test_a_link_to_code_and_one_to_a_heading_are_followed(tmp_path: Path) -> None:
    for n, link in enumerate(("../code.py", "#one-two")):
        (tmp_path / str(n)).mkdir()
        built = build(small_project(tmp_path / str(n), link), tmp_path / f"site-{n}")
        assert built.returncode == 0, built.stderr
    page = (tmp_path / "site-0/page.html").read_text()
    assert 'href="source/code.py.html"' in page


@pytest.mark.parametrize(
    ("link", "nav", "complaint"),
    [
        ("missing.md", True, "missing.md: no such file"),
        ("../../outside.py", True, "no such file"),
        ("#three", True, "#three"),
        ("#one-two", False, 'not included in the "nav"'),
    ],
)
def test_a_link_that_leads_nowhere_or_a_page_out_of_the_navigation_ends_the_build(
    tmp_path: Path,
    link: str,
    nav: bool,  # noqa: FBT001 - a column of the table
    complaint: str,
) -> None:
    built = build(small_project(tmp_path, link, nav=nav), tmp_path / "site")
    assert (built.returncode != 0, complaint in built.stderr) == (True, True), built.stderr
