"""What the pages say is compared with the code where it can be."""

import ast
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from changefeed.cli.app import COMMANDS
from changefeed.host.host import Host
from changefeed.host.settings import load_processors
from changefeed.pipeline.settings import load_settings as load_pipeline_settings
from changefeed.runtime.settings_schema import names
from tests.support import api_page, schemas_page, settings_page
from tests.support.commands import every_command

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    x
    for pages in ("*.md", "docs/**/*.md", "emulator/*.md", "samples/**/*.md")
    for x in ROOT.glob(pages)
)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
EVENT = re.compile(
    r'_log\.(?:debug|info|warning|error|log)\(\s*(?:[^"(),]+,\s*)?"([a-z_]+\.[a-z_]+)"'
)
METRIC = re.compile(r'"(changefeed\.[a-z_.]+)"')


def shown(file: Path) -> str:
    return str(file.relative_to(ROOT))


MADE = {
    ROOT / "docs/api.md": api_page.page,
    ROOT / "docs/settings.md": settings_page.page,
    ROOT / "docs/json.md": schemas_page.page,
}
"""Pages that the site makes."""


@cache
def anchors(file: Path) -> set[str]:
    """Return the names that headings have in links, as GitHub makes them."""
    text = MADE[file]() if file in MADE else file.read_text()
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", x.lower()).replace(" ", "-") for x in headings}


@pytest.mark.parametrize("file", PAGES, ids=shown)
def test_every_link_leads_somewhere(file: Path) -> None:
    wrong = []
    for target, anchor in LINK.findall(file.read_text()):
        if "://" in target:
            continue
        there = (file.parent / target).resolve() if target else file
        if not (there.exists() or there in MADE) or (anchor and anchor not in anchors(there)):
            wrong.append(f"{target}#{anchor}")
    assert wrong == []


def first_column(heading: str) -> str:
    """Return what stands first in the rows of a table of docs/metrics.md."""
    text = (ROOT / "docs/metrics.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert section, heading
    return "\n".join(re.findall(r"^\| ([^|]*) \|", section, re.MULTILINE))


def source(folder: str) -> str:
    return "\n".join(x.read_text() for x in sorted((ROOT / folder).rglob("*.py")))


def events() -> set[str]:
    rooms = ("host", "observers", "leases", "stores", "cli", "runtime")
    return {x for room in rooms for x in EVENT.findall(source(room))}


def events_of_brokers() -> set[str]:
    """Return those of the log, too, but for what producers say."""
    return set(re.findall(r'_log\.\w+\(\s*"((?!producer)[a-z_.]+)"', source("log")))


def test_every_event_of_the_log_is_explained_and_no_other() -> None:
    told = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", first_column("Logs of hosts")))
    assert told == events()


def test_every_event_of_a_broker_is_explained_and_no_other() -> None:
    told = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", first_column("Logs of brokers")))
    assert told == events_of_brokers()


@pytest.mark.parametrize(
    ("heading", "module"),
    [
        ("Metrics of hosts", "host/metrics.py"),
        ("Metrics of pipelines", "pipeline/metrics.py"),
    ],
)
def test_every_metric_is_explained_and_no_other(heading: str, module: str) -> None:
    told = re.findall(r"`(changefeed\.[a-z_.]+)`", first_column(heading))
    metrics = (ROOT / module).read_text()
    assert sorted(told) == sorted(set(METRIC.findall(metrics)) - {"changefeed.pipeline"})


def test_no_name_of_a_metric_is_the_place_of_others_nor_said_in_one_and_in_many() -> None:
    """OpenTelemetry's rules for names; a place is what stands before the last dot."""
    page = (ROOT / "docs/metrics.md").read_text()
    metrics = set(re.findall(r"^\| `(changefeed\.[a-z_.]+)`", page, re.MULTILINE))
    places = {x.rpartition(".")[0] for x in metrics}
    assert metrics & places == set()
    assert {f"{x}s" for x in places} & places == set()


def blocks(text: str, *kinds: str) -> list[str]:
    """Return the fenced blocks of these kinds, where ``""`` is a fence that names none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [x for kind, x in found if kind in kinds]


@pytest.mark.parametrize("file", PAGES, ids=shown)
def test_every_command_that_is_shown_exists_with_its_flags(file: Path) -> None:
    known = every_command(groups=True)
    text = file.read_text().replace("\\\n", " ")
    in_blocks = [y for x in blocks(text, "", "sh") for y in x.split("\n")]
    assert not re.search(r"\n\n {4,}changefeed ", text), "fence it, or nothing reads it"
    wrong = []
    for line in [*in_blocks, *re.findall(r"`([^`\n]+)`", text)]:
        words = line.split("#")[0].split()
        if words[:1] != ["changefeed"]:
            continue
        name, words = "", words[1:]
        while words and (longer := f"{name} {words[0]}".strip()) in known:
            name, words = longer, words[1:]
        flags = {x.split("=")[0].rstrip("]") for x in words if x.startswith("--")}
        if not name and words and not flags:
            wrong.append(line)
        if not known[name].context_settings.get("ignore_unknown_options"):
            there = {y for x in known[name].params for y in (*x.opts, *x.secondary_opts)}
            wrong += [f"{line}: {x}" for x in flags - there - {"--help", "--"}]
    assert wrong == []


@pytest.mark.parametrize("file", PAGES, ids=shown)
def test_every_setting_that_is_named_exists(file: Path) -> None:
    paths = [x for model in settings_page.MODELS.values() for x in names(model)]
    known = {".".join(x) for x in paths}
    sections = {x[0] for x in paths if len(x) > 1}
    text = file.read_text()
    named = re.findall(r"(?:--set[ =]|`)([a-z]+\.[a-z_.]+)(?:`|=| =)", text)
    settings = {x for x in named if x.split(".")[0] in sections}
    modules = {x for x in settings if (ROOT / x.replace(".", "/")).with_suffix(".py").exists()}
    of_host = {f"host.{x}" for x in (*dir(Host), *Host.__annotations__)}
    logged = events() | events_of_brokers()
    assert settings - known - logged - modules - of_host - NOT_SETTINGS == set()


NOT_SETTINGS = {
    "changefeed.host.wiring.open_host",
    "changefeed.host.wiring.wrapped",
    "changefeed.host.run.run_hosts",
    "cosmos.oltp",  # a format of Spark
}


def test_the_changelog_lists_every_command_and_stays_short() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert len(text.splitlines()) <= 65
    (listed,) = re.findall(r"^\*\*Commands\.\*\* (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    named = {x.split()[0] for x in re.findall(r"`([^`]*)`", listed)}
    assert named == set(COMMANDS)


@pytest.mark.parametrize("file", PAGES, ids=shown)
def test_every_file_of_ours_that_is_named_exists(file: Path) -> None:
    tops = "|".join(sorted(x.name for x in ROOT.iterdir() if (x / "__init__.py").exists()))
    named = set(re.findall(rf"`((?:{tops})/[\w./-]*\.py)`", file.read_text()))
    assert {x for x in named if not (ROOT / x).exists()} == set()


@pytest.mark.parametrize(
    "file", [x for x in PAGES if blocks(x.read_text(), "python")], ids=shown
)
def test_every_program_can_be_read_and_imports_what_there_is(file: Path) -> None:
    for program in blocks(file.read_text(), "python"):
        tree = compile(
            program, shown(file), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        )
        for x in ast.walk(tree):
            module = getattr(x, "module", None) or ""
            if isinstance(x, ast.ImportFrom) and module.split(".")[0] in (
                "changefeed",
                "cosmos_emulator",
            ):
                there = import_module(module)
                assert {y.name for y in x.names if not hasattr(there, y.name)} == set()


@pytest.mark.parametrize("file", [x for x in PAGES if blocks(x.read_text(), "toml")], ids=shown)
def test_every_file_of_settings_can_be_loaded(file: Path, tmp_path: Path) -> None:
    for text in blocks(file.read_text(), "toml"):
        if "[project." in text:  # a package's own
            continue
        (tmp_path / "settings.toml").write_text(text)
        if {"body_schema", "spark"} & tomllib.loads(text).keys():
            least = {"feed": "eventlog:log", "directory": "tables"}
            flags = {x: y for x, y in least.items() if x not in tomllib.loads(text)}
            load_pipeline_settings(tmp_path / "settings.toml", flags)
        else:
            load_processors(tmp_path / "settings.toml", {})
