"""What the pages tell to type, and what an image is built of."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cosmos_emulator.testing import Account

pytest_plugins = ["pytester"]

HERE = Path(__file__).parents[1]
PROGRAMS = re.findall(r"(?ms)^```python\n(.*?)^```", (HERE / "README.md").read_text())
DOCKERFILE = (HERE / "Dockerfile").read_text()


def test_the_client_of_the_readme_connects(cosmos_account: Account) -> None:
    program = PROGRAMS[0].replace("http://127.0.0.1:8081/", cosmos_account.url)
    names: dict[str, Any] = {}
    exec(program, names)
    assert list(names["client"].list_databases()) == []


def test_the_test_of_the_readme_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROGRAMS[1])
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_image_is_built_of_what_is_there_and_let_through() -> None:
    copied = {
        y for x in re.findall(r"^COPY (.*)$", DOCKERFILE, re.MULTILINE) for y in x.split()[:-1]
    }
    ignored = (HERE / ".dockerignore").read_text().splitlines()
    assert copied == {x[1:] for x in ignored if x.startswith("!")}
    assert [x for x in copied if not (HERE / x).exists()] == []


def test_the_image_runs_the_command_itself_and_not_as_root() -> None:
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    assert f"{json.loads(entry)[0]} = " in (HERE / "pyproject.toml").read_text()
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == ["10001"]
