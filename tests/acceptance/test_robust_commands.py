"""Every command, whose output is not taken, and that is stopped while it waits."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from socket import create_connection
from typing import Final, Literal, NamedTuple

import pytest

from tests.support.commands import COMMAND, every_command, left_running, running
from tests.support.leased_log import make_home, stored
from tests.support.pipeline_feeds import a_checkpoint
from tests.support.ports import free_port
from tests.support.processes import PATIENCE, ended, until
from tests.support.silence import Silent


class Case(NamedTuple):
    """Arguments with which a command prints something, where that takes no more than files, and
    those with which it waits for a server that never answers.
    """

    does: Literal["looks", "acts", "serves"]
    prints: str | None
    waits: str | None


STORE: Final = "--leases=sqlite:leases.db"
LETTERS: Final = "--set=observer.dead_letters=sqlite:letters.db"
FLEET: Final = f"--feed=eventlog:log {STORE}"
SILENT: Final = "--leases=redis://{server}"
SILENT_LETTERS: Final = "--set=observer.dead_letters=redis://{server}"
SILENT_FLEET: Final = f"--feed=eventlog:log {SILENT}"
SILENT_LOG: Final = "brokers://{server}/orders"
RANGE: Final = "e1.p01.v00-ff"

CASES: Final[Mapping[str, Case]] = {
    "run": Case(
        "serves",
        f"{FLEET} --observer=log --set=web.port={{port}}",
        f"{SILENT_FLEET} --observer=log",
    ),
    "status": Case("looks", FLEET, SILENT_FLEET),
    "monitor": Case("serves", f"{FLEET} --set=web.port={{port}}", SILENT_FLEET),
    "pause": Case("acts", f"--all {STORE}", f"--all {SILENT}"),
    "resume": Case("acts", f"{RANGE} {STORE}", f"{RANGE} {SILENT}"),
    "reset": Case("acts", f"--all --to=now --yes {FLEET}", f"--all --to=now {SILENT_FLEET}"),
    "range split": Case("acts", f"{RANGE} {FLEET}", f"{RANGE} {SILENT_FLEET}"),
    "range merge": Case("acts", None, f"{RANGE}~00-7f {RANGE}~80-ff {SILENT_FLEET}"),
    "positions export": Case("acts", f"file {FLEET}", f"file {SILENT_FLEET}"),
    "positions import": Case("acts", f"saved --yes {FLEET}", f"saved {SILENT_FLEET}"),
    "dead-letters list": Case("looks", LETTERS, SILENT_LETTERS),
    "dead-letters replay": Case(
        "acts", f"--all --observer=log {LETTERS}", f"--all --observer=log {SILENT_LETTERS}"
    ),
    "dead-letters discard": Case("acts", f"--all {LETTERS}", f"--all {SILENT_LETTERS}"),
    "dead-letters park": Case("acts", None, f"{RANGE} k1 {SILENT}"),
    "dead-letters release": Case("acts", None, f"{RANGE} k1 {SILENT}"),
    "doctor": Case("looks", f"--watch=0 {FLEET}", f"--watch=60 {SILENT_FLEET}"),
    "config": Case("acts", "host file", None),
    "produce": Case("acts", "log lines --key=k", f"{SILENT_LOG} lines --key=k"),
    "log create": Case("acts", "fresh", SILENT_LOG),
    "log status": Case("looks", None, SILENT_LOG),
    "log split": Case("acts", f"log {RANGE}", f"{SILENT_LOG} {RANGE}"),
    "log merge": Case("acts", None, f"{SILENT_LOG} {RANGE}"),
    "log retain": Case("acts", "log --for=1h", f"{SILENT_LOG} --for=1h"),
    "log compact": Case("acts", "log", SILENT_LOG),
    "emulator": Case("serves", "--port={port}", None),
    "broker": Case(
        "serves", "--name=a --cluster=file:///{place}/cluster --set=web.port={port}", None
    ),
    "pipeline status": Case("looks", "--feed=eventlog:shop/log --directory=shop/tables", None),
    "pipeline schema": Case("looks", "--feed=eventlog:shop/log", f"--feed={SILENT_LOG}"),
}
PRINTING: Final = [x for x, one in CASES.items() if one.prints is not None]
WAITING: Final = [x for x, one in CASES.items() if one.waits is not None]


def test_no_command_is_left_out() -> None:
    spark = "pipeline run"  # tests/acceptance/test_pipeline_command.py
    assert {*every_command()} == {*CASES, spark}


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    await make_home(tmp_path)
    (tmp_path / "shop").mkdir()
    await asyncio.to_thread(a_checkpoint, tmp_path / "shop")
    return tmp_path


def unread() -> int:
    """Return the end of a pipe that no process reads."""
    read, write = os.pipe()
    os.close(read)
    return write


def full() -> Path:
    return Path("/dev/full")


def answers(port: int) -> bool:
    with suppress(OSError), create_connection(("127.0.0.1", port)):
        return True
    return False


UNREAD: Final = "Broken pipe"
OUTPUTS: Final[Mapping[str, Callable[[], Path | int]]] = {
    UNREAD: unread,
    "No space left on device": full,
}


@pytest.mark.parametrize(
    ("name", "reason"),
    [(x, y) for x in PRINTING for y in OUTPUTS if y == UNREAD or CASES[x].does != "serves"],
)
def test_output_that_is_not_taken_fails_only_what_looks(
    name: str, reason: str, place: Path
) -> None:
    does, prints, _ = CASES[name]
    port = free_port()
    words = f"{name} {prints}".format(port=port, place=place).split()
    with left_running(*words, cwd=place, printed=OUTPUTS[reason]()) as process:
        if does == "serves":
            until(partial(answers, port), process)
            process.terminate()
        code = process.wait(PATIENCE)
    said = (place / "said").read_text()
    fails = 128 + signal.SIGPIPE if reason == UNREAD else 1
    assert code == (fails if does == "looks" else 0), said
    assert "Traceback" not in said
    if does != "serves":
        assert (reason in said) == (does == "acts" or reason != UNREAD), said
    if does == "acts":
        assert len(said.splitlines()) > 1, "what was done is said here"


@pytest.mark.parametrize("words", ["--version", "--help", "run --help"])
def test_help_that_nobody_reads_ends_as_other_output_does(words: str, tmp_path: Path) -> None:
    with left_running(*words.split(), cwd=tmp_path, printed=unread()) as process:
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE


def files(place: Path) -> set[str]:
    return {x.name for x in place.iterdir() if not x.name.startswith("stderr-")}


STOPPED: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.parametrize("name", WAITING)
async def test_a_command_that_waits_ends_at_once_when_it_is_asked_to(
    name: str, place: Path
) -> None:
    does, _, waits = CASES[name]
    before = files(place)
    for number, code in STOPPED.items():
        with Silent() as silent:
            words = f"{name} {waits}".format(server=f"127.0.0.1:{silent.port}").split()
            async with running(*words, cwd=place) as process:
                await process.reaches(silent.asked.is_set)
                process.process.send_signal(number)
                assert await process.ends() == (0 if does == "serves" else code), process.said
                assert "Traceback" not in process.said
    assert files(place) == before


def test_a_question_that_the_output_does_not_take_is_asked_elsewhere(place: Path) -> None:
    before = stored(place, "position")
    words = f"reset --all --to=beginning {FLEET}".split()
    with left_running(*words, cwd=place, printed=unread()) as process:
        assert process.wait(PATIENCE) == 1
    assert stored(place, "position") == before
    said = (place / "said").read_text()
    assert "Move 2 ranges?" in said
    assert "nothing was changed" in said


def test_positions_that_were_not_written_are_a_failure(place: Path) -> None:
    words = f"positions export - {FLEET}".split()
    with left_running(*words, cwd=place, printed=unread()) as process:
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    shell = ("sh", "-c", 'exec "$@" >&-', "sh")
    closed = ended(*shell, *COMMAND, *words, cwd=place)
    says = "changefeed: standard output is closed: let it go to a file, or name one\n"
    assert (closed.returncode, closed.stderr) == (2, says)


def test_what_is_logged_while_a_command_works_is_said_with_its_values(place: Path) -> None:
    (frames,) = place.glob("log/wal/*/local/.frames/*.log")
    frames.write_bytes(frames.read_bytes()[:60] + b"XXXX" + frames.read_bytes()[64:])
    compacted = ended(*COMMAND, "log", "compact", "log", cwd=place)
    assert compacted.returncode == 2
    assert "\nbroker.failed operation=compact era=1 row=local error='wal/" in compacted.stderr


def test_hosts_end_in_order_once_nobody_reads_what_an_observer_prints(place: Path) -> None:
    (place / "printing.py").write_text("def show(changes):\n    print(changes, flush=True)\n")
    (place / "leases.db").unlink()
    words = f"run --processes=2 --observer=printing:show {FLEET}".split()
    with left_running(*words, cwd=place, printed=unread()) as process:
        assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    assert "nobody reads standard output" in (place / "said").read_text()
    assert stored(place, "owner") == [None, None]


async def test_a_watch_that_no_terminal_shows_prints_each_look(place: Path) -> None:
    async with running("status", "--watch", *FLEET.split(), cwd=place) as process:
        await process.prints(RANGE, times=2)
