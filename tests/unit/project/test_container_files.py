"""What can be said of the container files without an engine: they fit the project."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.support.commands import every_command

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def copied() -> set[str]:
    """Return what the build stage takes from the repository."""
    found = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    return {y for x in found for y in x.split()[:-1]}


def test_everything_that_is_copied_is_there_and_let_through() -> None:
    let_through = {
        x[1:] for x in (ROOT / ".dockerignore").read_text().splitlines() if x[:1] == "!"
    }
    assert copied() == let_through
    assert [x for x in copied() if not (ROOT / x).exists()] == []


def test_the_build_has_all_that_the_wheel_is_made_of() -> None:
    # The package is links to the folders that stand beside it.
    folders = {x.name for x in (ROOT / "changefeed").iterdir() if x.is_symlink()}
    needed = {*WHEEL, *folders, "pyproject.toml", PROJECT["project"]["readme"], "LICENSE"}
    assert needed | {"requirements.txt"} == copied()


@pytest.mark.parametrize("file", ["compose.yaml", "samples/brokers/compose.yaml"])
def test_the_commands_of_services_are_commands_with_their_flags(file: str) -> None:
    known = every_command()
    services = yaml.safe_load((ROOT / file).read_text())["services"].values()
    ours = [x for x in services if x["image"].startswith("changefeed-host:")]
    commands = [x["command"] for x in ours if "command" in x and "entrypoint" not in x]
    assert len(commands) == 4
    for words in commands:
        name = next(x for x in known if words[: len(x.split())] == x.split())
        known[name].make_context(name, words[len(name.split()) :])  # or it says what is wrong
