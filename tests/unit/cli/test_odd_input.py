"""What is only typed by mistake: a message and an exit code, and never a traceback."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.cli.diagnosing import look_at_disks
from changefeed.cli.io.files import write_file
from changefeed.host.settings import Settings, load_settings
from changefeed.leases.position_file import written
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.runtime.errors import UserError
from tests.support import make

pytestmark = pytest.mark.real_time


def called(arguments: Sequence[str], **environ: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environ)


@contextmanager
def gives_up_after(seconds: int) -> Iterator[None]:
    """Fail where a call hangs, which an exception of a signal's handler ends."""

    def fail(*_: object) -> None:
        pytest.fail(f"it has waited for {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_positions_are_not_saved_to_links_in_a_circle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").symlink_to("there")
    Path("there").symlink_to("here")
    with pytest.raises(UserError, match="'here' cannot be written"):
        write_file(Path("here"), b"{}")
    assert Path("here").is_symlink()


def test_a_file_system_without_a_size_is_no_full_disk() -> None:
    leases = {"address": "sqlite:/proc/nowhere/leases.db"}
    letters = {"dead_letters": "sqlite:/proc/nowhere/letters.db"}
    feed = {"address": "eventlog:/proc/nowhere/log"}
    settings = Settings.model_validate({"feed": feed, "leases": leases, "observer": letters})
    assert look_at_disks(settings) == []


def test_a_disk_that_is_nearly_full_is_said_where_something_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Mock(return_value=SimpleNamespace(total=1000, used=990, free=10))
    monkeypatch.setattr(shutil, "disk_usage", look)
    owners, done, log = (tmp_path / x for x in ("owners", "done", "log"))
    for place in (owners, done, log):
        place.touch()
    settings = load_settings(
        None,
        {
            "feed": {"address": f"eventlog:{log}"},
            "leases": {"address": f"sqlite:{owners}", "checkpoints": f"sqlite:{done}"},
            "observer": {"dead_letters": "postgresql://there/letters"},
        },
    )
    (found,) = look_at_disks(settings)
    assert "nearly full: 1% are free" in found.text
    assert look.mock_calls == [call(log), call(owners), call(done)]
    look.return_value.free = 500
    assert look_at_disks(settings) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--config=pipe"],
        ["broker", "--config=pipe"],
        ["pipeline", "status", "--config=pipe"],
        ["positions", "import", "pipe"],
        ["dead-letters", "list", "--set=observer.dead_letters=jsonl:pipe"],
    ],
    ids=" ".join,
)
def test_what_has_no_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with gives_up_after(20):
        found = called(arguments)
    assert found.exit_code == 2, found.output
    assert "pipe" in found.output


ENVIRONMENT = {
    "CHANGEFEED_FEED__ADDRESS": "eventlog:log",
    "CHANGEFEED_LEASES__ADDRESS": "sqlite:leases.db",
    "COLUMNS": "300",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log and its positions, and with files that are none of ours."""
    monkeypatch.chdir(tmp_path)
    asyncio.run(create_log("log", parts=1))
    positions = asyncio.run(at_the_beginning())
    Path("positions.json").write_text(positions)
    Path("ended.json").write_text(positions.replace('"end": null', '"end": {"children": []}'))
    Path("notes.txt").write_text("remember the milk")
    Path("lines.jsonl").write_text('{"k": "a"}\n')
    Path("utf16.toml").write_text("[feed]", "utf-16")
    Path("empty.db").touch()
    return tmp_path


async def at_the_beginning() -> str:
    async with EventLog.open(Path("log")) as feed:
        ranges = await feed.ranges()
        leases = [make.lease(x, at=await feed.start(x, "beginning")) for x in ranges]
        return written(leases, feed=feed.identity).decode()


LOOKS = {"doctor --watch=0", "positions import positions.json --dry-run"}


def files(home: Path) -> dict[str, int]:
    return {x.name: x.stat().st_size for x in home.iterdir()}


@pytest.mark.parametrize(
    ("command", "fact"),
    [
        ("statuss", "Did you mean 'status'?"),
        ("status", "/leases.db yet"),
        ("status --leases=sqlite:empty.db", "/empty.db yet"),
        ("status --feed=nats:x", "'nats:x' is not an address of a feed"),
        ("status --feed=data/log", "Did you mean eventlog:data/log?"),
        ("status --leases=blob+http://h:1/a/c", "check CHANGEFEED_BACKENDS__BLOB__KEY"),
        ("status --feed=eventlog:", "eventlog:DIRECTORY"),
        ("doctor --watch=0", "there are no leases at"),
        ("positions import positions.json --dry-run", "created"),
        ("doctor --watch=0 --leases=sqlite:nowhere/leases.db", "there is no directory"),
        ("monitor", "there are no leases at"),
        ("monitor --actions", "--actions needs a token"),
        ("pause", "--all"),
        ("pause r0 --all", "--all"),
        ("pause --all", "there are no leases at"),
        ("reset --all --to=now", "there are no leases at"),
        ("positions export saved.json", "there are no leases at"),
        ("config host notes.txt", "notes.txt is there already"),
        ("positions import ended.json --yes", "has not ended"),
        ("dead-letters list", "there are no dead letters at"),
        ("dead-letters list --set=observer.dead_letters=jsonl:x", "no dead letters at"),
        ("dead-letters replay --all --observer=log", "there are no dead letters at"),
        ("dead-letters replay --all", "no observer was named"),
        ("run --observer=log --processes=3 --set=web.port=x", "web.port (from the command"),
        ("run --observer=log --set=observer.options=3", "be a table of names and values"),
        ("run --observer=log --config=utf16.toml", "save it as UTF-8"),
        ("run --observer=log --name=", "line): should have at least 1 character"),
        ("dead-letters replay x --of=y --observer=log", "--of goes with --all"),
        ("produce more none.jsonl --key=k", "none.jsonl cannot be read: No such file"),
        (
            "produce notes.txt/log lines.jsonl --key=k",
            "no event log can be made at notes.txt/log",
        ),
        ("produce more lines.jsonl --key=k --parts=0", "a log has 1 to 4096 parts, not 0"),
        ("produce more lines.jsonl --key=kind", "line 1: it has no 'kind'"),
        ("produce broker://h:1/o --key=k", "brokers://h:1/o?"),
        ("produce brokers://h:1/o - --key=k --parts=3", "log create"),
        ("log create notes.txt", "notes.txt is a file. Give the directory of a log"),
        ("log create log", "no event log can be made at log: it is not empty"),
        ("pipeline status --feed=eventlog:log --directory=notes.txt", "notes.txt is a file"),
        ("log retain brokers://h:1/o --for=7w", "7d"),
        ("log split log nope", "'nope'"),
        ("log merge log nope", "'nope'"),
    ],
)
def test_a_mistake_or_a_look_is_told_and_nothing_is_made(
    home: Path, command: str, fact: str
) -> None:
    before = files(home)
    found = called(command.split(), **ENVIRONMENT)
    code = 0 if command in LOOKS else 2
    assert (found.exit_code, fact in found.output) == (code, True), found.output
    assert files(home) == before
