"""Commands that only look, and plans of those that write: they make nothing."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.leases.position_file import written
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from tests.support import make

pytestmark = pytest.mark.real_time


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    asyncio.run(create_log("log", parts=1))
    Path("positions.json").write_bytes(asyncio.run(at_the_beginning()))
    return tmp_path


async def at_the_beginning() -> bytes:
    async with EventLog.open(Path("log")) as feed:
        leases = [
            make.lease(x, at=await feed.start(x, "beginning")) for x in await feed.ranges()
        ]
        return written(leases, feed=feed.identity)


def files(home: Path) -> set[str]:
    return {x.name for x in home.iterdir()}


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["status"], 2),
        (["status", "--json"], 2),
        (["doctor", "--watch=2"], 0),
        (["monitor"], 2),
        (["positions", "export", "saved.json"], 2),
        (["positions", "import", "positions.json", "--dry-run"], 0),
        (["reset", "--all", "--to=now", "--dry-run"], 2),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_mistyped_file_of_leases_is_not_made(
    home: Path, command: list[str], code: int
) -> None:
    before = files(home)
    places = ("--feed=eventlog:log", "--leases=sqlite:mistyped.db")
    found = CliRunner().invoke(app, [*command, *places], env={"COLUMNS": "300"})
    assert (found.exit_code, files(home)) == (code, before), found.output


def test_wrong_positions_are_refused_before_leases_are_made(home: Path) -> None:
    name = "wrong.json"
    Path(name).write_text(
        Path("positions.json").read_text().replace('"end": null', '"end": {"children": []}')
    )
    before = files(home)
    places = ("--feed=eventlog:log", "--leases=sqlite:leases.db")
    found = CliRunner().invoke(app, ["positions", "import", "--yes", name, *places])
    assert (found.exit_code, files(home)) == (2, before), found.output
    assert "has not ended" in found.output


@pytest.mark.usefixtures("home")
def test_leases_are_not_made_in_an_empty_file() -> None:
    Path("mistyped.db").touch()
    places = ("--feed=eventlog:log", "--leases=sqlite:mistyped.db")
    found = CliRunner().invoke(app, ["status", *places])
    assert (found.exit_code, Path("mistyped.db").stat().st_size) == (2, 0), found.output


@pytest.mark.usefixtures("home")
def test_doctor_says_whether_the_leases_can_be_made() -> None:
    def said(leases: str) -> tuple[int, str]:
        command = ["doctor", "--watch=0", "--feed=eventlog:log", f"--leases={leases}"]
        found = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
        return found.exit_code, found.output

    here = Path.cwd()
    code, text = said("sqlite:mistyped.db")
    assert (code, f"there are no leases at {here}/mistyped.db yet" in text) == (0, True)
    code, text = said("sqlite:nowhere/leases.db")
    assert (code, f"there is no directory {here}/nowhere" in text) == (2, True)


@pytest.mark.parametrize("address", ["sqlite:mistyped.db", "jsonl:mistyped.jsonl"])
def test_mistyped_dead_letters_are_not_made(home: Path, address: str) -> None:
    before = files(home)
    setting = f"--set=observer.dead_letters={address}"
    found = CliRunner().invoke(app, ["dead-letters", "list", setting])
    assert (found.exit_code, files(home)) == (2, before), found.output
    shown = address.replace("mistyped", f"{Path.cwd()}/mistyped")
    assert f"there are no dead letters at {shown}" in found.output
