"""A change that ends its process, and a fleet under a supervisor that is to get past it."""

import json
import os
import signal
from collections import defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, a_log_of, invoked, running
from tests.support.processes import Running

CHANGES, KILLER, LIMIT = 120, 17, 6
OBSERVERS = """
import asyncio, ctypes, json, os, re, resource, signal, sys, time
from pathlib import Path

def done(changes):
    with open("handled", "a") as file:
        for change in changes:
            file.write(json.dumps([change.key, change.value()["n"]]) + "\\n")

def observer(kill):
    async def process(context, changes):
        for change in changes:
            if change.value()["n"] == 17:
                kill()
            done([change])
    return process

def memory():
    resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    while True:
        block = libc.malloc(2**26)
        ctypes.memset(block, 1, 2**26)  # what C code does that trusts in malloc

async def slow(context, changes):
    for change in changes:
        await asyncio.sleep(0.3)
        done([change])

def off_the_loop(context, changes):
    for change in changes:
        while change.value()["n"] == 17:
            time.sleep(1)
        done([change])

abort = observer(os.abort)
segfault = observer(lambda: ctypes.string_at(0))
out_of_memory = observer(memory)
expression = observer(lambda: re.match(r"(a+)+$", "a" * 60 + "b"))
leave = observer(lambda: os._exit(0))
"""
ENDS = {
    "abort": "SIGABRT",
    "segfault": "SIGSEGV",
    "out_of_memory": "SIGSEGV",
    "expression": "exit code 3: its event loop stood still",
    "leave": "exit code 0",
    "off_the_loop": "exit code 1",
}
LETTERS = "--set=observer.dead_letters=sqlite:letters.db"
FLEET = (
    *("run", "--processes=3", "--name=h", *PLACES, *QUICK, LETTERS),
    *("--set=observer.on_failure=dead-letter", "--set=observer.max_unacknowledged=10"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    a_log_of(CHANGES, tmp_path, parts=6)
    (tmp_path / "killing.py").write_text(OBSERVERS)
    return tmp_path


def handled(place: Path) -> dict[str, list[int]]:
    """Return what each key was handled of, in order, as it was first."""
    file = place / "handled"
    found = defaultdict[str, list[int]](list)
    for line in file.read_text().splitlines() if file.exists() else ():
        key, n = json.loads(line)
        if n not in found[key]:
            found[key].append(n)
    return found


def size(place: Path) -> int:
    file = place / "handled"
    return file.stat().st_size if file.exists() else 0


def has_more(place: Path, *, than: int) -> bool:
    return size(place) > than


def is_done(place: Path, *, without: set[int]) -> bool:
    return {n for x in handled(place).values() for n in x} == {*range(CHANGES)} - without


def letters(place: Path) -> list[dict[str, str]]:
    shown = invoked("dead-letters", "list", LETTERS, "--json", cwd=place)
    assert shown.returncode == 0, shown.stderr
    return list(json.loads(shown.stdout))


@pytest.mark.parametrize("kind", ENDS)
async def test_what_kills_is_put_aside_and_all_else_is_handled_in_order(
    kind: str, place: Path
) -> None:
    more = ("--set=observer.timeout=1",) if kind == "off_the_loop" else ()
    flags = (*FLEET, f"--observer=killing:{kind}", *more)
    async with running(*flags, cwd=place) as fleet:
        await fleet.reaches(lambda: bool(fleet.events("change.dead_lettered")))
        await fleet.reaches(lambda: is_done(place, without={KILLER}))
        await in_order_or_not(fleet)
    ended = [x for x in fleet.events("process.ended") if "again_after" in x]
    assert 4 <= len(ended) <= LIMIT, ended
    (letter,) = letters(place)
    # Who takes it after it has expired has not seen how its owner ended.
    assert letter["error"].removesuffix(f" ({ENDS[kind]})") == "killed its process 4 times"
    assert all(x == sorted(x) for x in handled(place).values())
    acquired = [x for x in fleet.events("lease.acquired") if "deaths" in x]
    blamed = {x["range"] for x in acquired if x["deaths"].get("with_suspect", 0) >= 4}
    assert blamed == {letter["range_id"]}


async def in_order_or_not(fleet: Running) -> None:
    """Stop a supervisor. It ends with 1 where a process has just died, and is not back yet."""
    fleet.process.send_signal(signal.SIGTERM)
    assert await fleet.ends() in {0, 1}, fleet.said


async def test_a_fleet_that_is_killed_three_times_in_a_row_puts_nothing_aside(
    place: Path,
) -> None:
    flags = (*FLEET, "--observer=killing:slow")
    async with running(*flags, cwd=place) as fleet:
        for n in range(3):
            await fleet.says('"event": "process.started"', times=3 * (n + 1))
            await fleet.reaches(partial(has_more, place, than=size(place)))
            kill_all(fleet)
        await fleet.reaches(lambda: is_done(place, without=set()))
        await in_order_or_not(fleet)
    assert fleet.events("change.dead_lettered") == []
    acquired = [x for x in fleet.events("lease.acquired") if "deaths" in x]
    causes = {x["deaths"].get("cause", "") for x in acquired}
    assert causes <= {"SIGKILL", ""}
    assert causes
    assert all(x == sorted(x) for x in handled(place).values())


def kill_all(fleet: Running) -> None:
    for pid in {x["pid"] for x in fleet.events("process.started")[-3:]}:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
