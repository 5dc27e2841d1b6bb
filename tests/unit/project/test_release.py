"""What a release is cut from: one version, a changelog, and workflows that nobody can move."""

import importlib.metadata
import re
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

import changefeed
from changefeed.cli.app import app
from tests.support.version import ROOT, said

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_what_repeats_the_version_says_that_of_the_package() -> None:
    found = {file: version for file, version in said() if version != changefeed.__version__}
    assert found == {}, f"run: make version VERSION={changefeed.__version__}"
    files = {file for file, _ in said()}
    assert {Path("Dockerfile"), Path("deploy/helm/changefeed/Chart.yaml")} <= files


def test_the_version_is_known_where_nothing_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> NoReturn:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setattr(importlib.metadata, "version", missing)
    shown = CliRunner().invoke(app, ["--version"])
    assert shown.output == f"changefeed {changefeed.__version__}\n"


def test_the_changelog_begins_with_this_version_or_what_follows_it() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = [x for x in headings if x != "Unreleased"]
    assert released[0].split(":")[0] == changefeed.__version__


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda x: x.stem)
def test_actions_are_pinned_by_hash_and_say_their_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)$", workflow.read_text(), re.MULTILINE)
    pinned = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert [x for x in used if not pinned.fullmatch(x)] == []
