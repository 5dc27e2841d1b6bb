"""Commands whose output is not read do what they were asked for, and say so elsewhere."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import COMMAND
from tests.support.leased_log import make_leased_log, stored
from tests.support.processes import ended

pytestmark = pytest.mark.real_time

LEASES = "--leases=sqlite:leases.db"
PLACES = f"--feed=eventlog:log {LEASES}"
FIRST, SECOND = "e1.p01.v00-ff", "e1.p02.v00-ff"
SAID = "changefeed: standard output: Broken pipe. What it does not take is said here\n"


@contextmanager
def unread() -> Iterator[int]:
    """A pipe that no process reads."""
    read, write = os.pipe()
    os.close(read)
    try:
        yield write
    finally:
        os.close(write)


def run(
    command: str, cwd: Path, out: int, err: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *command.split()],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    asyncio.run(make_leased_log(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"pause --all {LEASES}", [f"{FIRST}: paused", f"{SECOND}: paused"]),
        (f"pause --force {FIRST} {LEASES}", [f"{FIRST}: paused"]),
        (f"range split {FIRST} {PLACES}", [f"{FIRST}: split; it goes on in"]),
        (f"positions export saved {PLACES}", ["saved: 2 leases"]),
        ("config host a.toml", ["wrote a.toml"]),
        ("produce log more --key=k", ["2 changes appended to log, in"]),
    ],
    ids=lambda x: x.split()[0] if isinstance(x, str) else "",
)
def test_what_was_done_is_said_where_it_can_be_read(
    place: Path, command: str, says: list[str]
) -> None:
    (place / "more").write_text('{"k": 1}\n{"k": 2}\n')
    with unread() as pipe:
        done = run(command, place, pipe)
    assert (done.returncode, done.stderr.startswith(SAID)) == (0, True), done.stderr
    lines = done.stderr.removeprefix(SAID).splitlines()
    assert len(lines) >= len(says)
    assert all(line.startswith(x) for line, x in zip(lines, says, strict=False)), lines


def test_a_question_that_the_output_does_not_take_is_asked_elsewhere(place: Path) -> None:
    before = stored(place, "position")
    with unread() as pipe:
        done = run(f"reset --all --to=beginning {PLACES}", place, pipe)
    assert (done.returncode, stored(place, "position")) == (1, before)
    assert "Move 2 ranges?" in done.stderr
    assert "nothing was changed" in done.stderr


def test_positions_that_were_not_written_are_a_failure(place: Path) -> None:
    with unread() as pipe:
        assert run(f"positions export - {PLACES}", place, pipe).returncode == 1
    shell = ("sh", "-c", f'exec "$@" positions export - {PLACES} >&-', "sh")
    closed = ended(*shell, *COMMAND, cwd=place)
    says = "changefeed: standard output is closed: let it go to a file, or name one\n"
    assert (closed.returncode, closed.stderr) == (2, says)
