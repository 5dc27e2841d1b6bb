"""The commands of operators, over real files: paused, released, reset, put aside, saved."""

import asyncio
import json
import os
import re
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.leases.addresses import open_container
from changefeed.log.directory.directory import create_log
from changefeed.log.records import Record
from tests.support import make
from tests.support.commands import (
    PLACES,
    QUICK,
    a_log_of,
    changefeed,
    invoked,
    owners,
    running,
    status,
)
from tests.support.processes import Running

OPERATE = ("--leases=sqlite:leases.db", *QUICK)
OBSERVE = ("run", *PLACES, *QUICK, "--name=anna")
RANGES = [f"e1.p{n:02}.v00-ff" for n in range(1, 5)]

PICKY = """
import pathlib

def picky(changes):
    for change in changes:
        if change.value()["n"] in (7, 57) and not pathlib.Path("mended").exists():
            raise ValueError("I want no [bold]sevens")

def idle(changes):
    pass
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(100, folder)
    (folder / "observing.py").write_text(PICKY)
    return folder


async def until_all_is_read(host: Running, place: Path) -> None:
    await host.says('"event": "lease.acquired"', times=4)
    await host.reaches(lambda: sum(positions(place)) == 100)


def positions(place: Path) -> list[int]:
    """Return the position of each lease, read past all code of ours."""
    with closing(sqlite3.connect(place / "leases.db")) as leases:
        rows = leases.execute("select position from leases order by range_id").fetchall()
    return [int(x.partition("/")[2]) for (x,) in rows]


async def read_once(place: Path, *more: str) -> Running:
    """Let a host read everything there is, and stop."""
    async with running(*OBSERVE, "--observer=observing:idle", *more, cwd=place) as host:
        await until_all_is_read(host, place)
        await host.stops()
    return host


def operate(place: Path, *arguments: str, stdin: str = "") -> CompletedProcess[str]:
    return invoked(*arguments, *OPERATE, cwd=place, stdin=stdin)


def leases_of(place: Path) -> dict[str, Any]:
    return {x["range"]: x for x in status(place)["ranges"]}


async def test_a_paused_range_is_let_go_of_shown_with_its_reason_and_taken_again(
    place: Path,
) -> None:
    async with running(*OBSERVE, "--observer=observing:idle", cwd=place) as host:
        await until_all_is_read(host, place)
        said = operate(place, "pause", RANGES[1], "--reason=the [disk] is full")
        assert (said.returncode, said.stdout) == (
            0,
            f"{RANGES[1]}: paused; anna finishes what it has in hand and releases it\n",
        )
        await host.reaches(lambda: owners(place) == ["anna", None, "anna", "anna"])
        shown = invoked("status", *PLACES, cwd=place, env={"COLUMNS": "150"}).stdout
        assert "4 leases (1 paused)" in shown
        assert f"paused: {RANGES[1]}: the [disk] is full" in shown
        assert leases_of(place)[RANGES[1]]["note"] == "the [disk] is full"
        again = operate(place, "pause", RANGES[1])
        assert again.stdout == f"{RANGES[1]}: already paused: the [disk] is full\n"

        resumed = operate(place, "resume", RANGES[0], RANGES[1])
        assert resumed.stdout == f"{RANGES[1]}: resumed\n{RANGES[0]}: was not paused\n"
        await host.reaches(lambda: owners(place) == ["anna"] * 4)
        await host.stops()


async def test_a_lease_is_taken_from_a_killed_owner_and_another_goes_on_at_once(
    place: Path,
) -> None:
    long = ("--set=leases.expiration=120",)
    async with running(*OBSERVE, *long, "--observer=observing:idle", cwd=place) as host:
        await until_all_is_read(host, place)
        host.process.kill()
        await host.ends()
    said = operate(place, "pause", "--force", RANGES[2])
    assert said.returncode == 0
    assert f"{RANGES[2]}: taken from anna; its epoch 1 is over" in said.stdout
    assert owners(place) == ["anna", "anna", None, "anna"]
    assert leases_of(place)[RANGES[2]]["epoch"] == 2
    again = operate(place, "pause", "--force", RANGES[2])
    assert again.stdout == f"{RANGES[2]}: paused\n"
    operate(place, "resume", RANGES[2])
    options = ("--name=ben", "--observer=observing:idle", *long)
    async with running(*OBSERVE[:-1], *options, cwd=place) as ben:
        await ben.reaches(lambda: owners(place)[2] == "ben")
        assert owners(place)[0] == "anna"
        await ben.stops()


async def test_a_reset_says_what_it_means_asks_and_delivers_again(place: Path) -> None:
    options = ("--observer=jsonl", "--option=path=out.jsonl")
    await read_once(place, *options)
    before = positions(place)
    reset = ("reset", "--all", "--to=beginning", "--feed=eventlog:log")
    refused = operate(place, *reset, stdin="n\n")
    assert refused.returncode == 1
    assert "Move 4 ranges?" in refused.stdout
    assert "nothing was changed" in refused.stdout
    assert positions(place) == before
    tried = operate(place, *reset, "--dry-run")
    assert (tried.returncode, "Move" in tried.stdout) == (0, False)
    assert re.findall(r"(\d+) delivered again", tried.stdout)
    assert positions(place) == before
    said = operate(place, *reset, "--yes")
    assert said.returncode == 0
    counts = [int(x) for x in re.findall(r"(\d+) delivered again", said.stdout)]
    assert sum(counts) == 100
    assert (counts, positions(place)) == (before, [0] * 4)
    await read_once(place, *options)
    lines = [json.loads(x) for x in (place / "out.jsonl").read_text().splitlines()]
    assert sorted(x["body"]["n"] for x in lines) == sorted([*range(100), *range(100)])


async def test_dead_letters_are_listed_shown_and_replayed_once_the_cause_is_mended(
    place: Path,
) -> None:
    kept = "--set=observer.dead_letters=sqlite:dead.db"
    failing = (
        "--set=observer.on_failure=dead-letter",
        "--set=observer.retry.attempts=2",
        "--set=observer.retry.max_delay=0.05",
    )
    async with running(
        *OBSERVE, kept, *failing, "--observer=observing:picky", cwd=place
    ) as host:
        await host.says('"event": "change.dead_lettered"')
        # A second change is put aside on suspicion only when others have succeeded since.
        more = [Record(key=f"other-{n}", body=b'{"n": -1}') for n in range(40)]
        await make.append(place / "log", more)
        await host.says('"event": "change.dead_lettered"', times=2)
        await host.stops()

    def letters(*arguments: str) -> CompletedProcess[str]:
        narrow = {"COLUMNS": "40"}  # of a pipe this says nothing
        command = changefeed if "replay" in arguments else invoked  # that imports the observer
        return command("dead-letters", *arguments, kept, cwd=place, env=narrow)

    listed = json.loads(letters("list", "--json").stdout)
    assert [(x["key"], x["kind"]) for x in listed] == [("key-7", "ValueError")] * 2
    assert "body" not in listed[0]
    assert "I want no [bold]sevens" in letters("list").stdout
    first, second = (x["id"] for x in listed)
    table = letters("list").stdout.splitlines()
    assert [sum(x["id"] in line for line in table) for x in listed] == [1, 1], "none is cut"
    (shown,) = json.loads(letters("list", first, "--json").stdout)
    assert shown["body"] == {"k": "key-7", "n": 7}
    assert "raise ValueError" in shown["trace"]
    assert "raise ValueError" in letters("list", first).stdout

    failed = letters("replay", "--all", "--observer=observing:picky")
    assert failed.returncode == 1
    assert f"{first}: failed, and stays: ValueError: I want no [bold]sevens" in failed.stderr
    assert f"{second}: left out, as an earlier change of its key failed" in failed.stderr
    (place / "mended").touch()
    one = letters("replay", second, "--observer=observing:picky")
    assert (one.returncode, one.stdout) == (0, f"{second}: handled\n")
    assert [x["id"] for x in json.loads(letters("list", "--json").stdout)] == [first]
    assert letters("discard").returncode == 2
    assert letters("discard", second).returncode == 2
    gone = letters("discard", first)
    assert (gone.returncode, gone.stdout) == (0, f"{first}: discarded\n")
    assert letters("list").stdout == "there are no dead letters\n"


OTHER = ("--set=leases.address=sqlite:owners.db", "--set=leases.checkpoints=sqlite:done.db")


async def test_positions_are_saved_given_back_and_carried_to_another_kind_of_container(
    place: Path,
) -> None:
    await read_once(place)
    saved = invoked("positions", "export", "before.json", *PLACES, cwd=place)
    assert (saved.returncode, saved.stdout) == (0, "before.json: 4 leases\n"), saved.stderr
    before = positions(place)
    assert json.loads((place / "before.json").read_text())["feed"]

    moved = invoked("reset", "--all", "--to=beginning", "--yes", *PLACES, cwd=place)
    assert (moved.returncode, sum(positions(place))) == (0, 0)
    restore = ("positions", "import", "before.json")
    planned = invoked(*restore, "--dry-run", *PLACES, cwd=place)
    assert planned.stdout.count("never delivered") == 4
    refused = invoked(*restore, *PLACES, cwd=place, stdin="n\n")
    assert refused.returncode == 1
    assert sum(positions(place)) == 0
    done = invoked(*restore, "--yes", *PLACES, cwd=place)
    assert (done.returncode, positions(place)) == (0, before), done.stderr

    planned = invoked(*restore, "--dry-run", PLACES[0], *OTHER, cwd=place)
    assert planned.stdout.count("created, 0 changes behind") == 4
    assert not (place / "owners.db").exists(), "a dry run creates nothing"
    elsewhere = invoked(*restore, "--yes", PLACES[0], *OTHER, cwd=place)
    assert (elsewhere.returncode, elsewhere.stdout.count(": created\n")) == (0, 4)
    shown = invoked("status", "--json", PLACES[0], *OTHER, cwd=place)
    assert [x["lag"] for x in json.loads(shown.stdout)["ranges"]] == [0, 0, 0, 0]


async def test_while_a_host_lives_nothing_is_given_back(place: Path) -> None:
    async with running(*OBSERVE, "--observer=observing:idle", cwd=place) as host:
        await until_all_is_read(host, place)
        saved = invoked("positions", "export", "-", *PLACES, cwd=place)
        (place / "at-start.json").write_text(re.sub(r"/\d+\"", '/0"', saved.stdout))
        said = invoked(
            *("positions", "import", "at-start.json", "--yes"), *PLACES, *QUICK, cwd=place
        )
        assert said.returncode == 2
        assert "anna lives: stop all hosts of the fleet first" in said.stderr
        assert sum(positions(place)) == 100
        assert {x["owner"] for x in status(place)["ranges"]} == {"anna"}


async def test_an_export_overwrites_no_file_and_is_written_into_what_is_none(
    place: Path,
) -> None:
    await read_once(place)
    save = ("positions", "export")
    (place / "kept.json").write_text("of before")
    os.mkfifo(place / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((place / "pipe").read_text()))
    reader.start()
    said = invoked(*save, "pipe", *PLACES, cwd=place)
    assert (said.returncode, said.stdout) == (0, "pipe: 4 leases\n"), said.stderr
    reader.join(20)
    assert (place / "pipe").is_fifo()
    assert [len(json.loads(x)["positions"]) for x in read] == [4]
    said = invoked(*save, "kept.json", *PLACES, cwd=place)
    assert (said.returncode, "is there already" in said.stderr) == (2, True)
    assert (place / "kept.json").read_text() == "of before"
    for name in ("", ".", "/", str(place), "none/there", "n" * 300):
        said = invoked(*save, name, *PLACES, cwd=place)
        assert said.returncode == 2, said.stderr
        assert "cannot be written" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["pause", "e1.p02.v0-ff"], "did you mean e1.p02.v00-ff?"),
        (["pause", "--force", "x"], "'x'"),
        (["reset", "x", "--to=now"], "'x'"),
        (["reset", RANGES[0], "--to=2026-01-31"], "has no zone"),
        (["reset", RANGES[0], "--to=12345678/3"], "another log"),
        (["reset", RANGES[0], "--to=now", "--feed=eventlog:none"], "none"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_a_mistake_is_told_and_changes_nothing(
    read: Path, arguments: list[str], says: str
) -> None:
    before = positions(read)
    ended = invoked(arguments[0], *PLACES, *arguments[1:], cwd=read)
    assert ended.returncode == 2, ended.stdout
    assert says in ended.stderr
    assert positions(read) == before


@pytest.mark.parametrize(
    "command",
    [
        ["reset", RANGES[0], "--to=now", "--yes"],
        ["range", "split", RANGES[0]],
        ["range", "merge", *RANGES[:2]],
    ],
    ids=lambda x: x[0],
)
def test_positions_in_another_feed_are_refused_and_nothing_changes(
    read: Path, tmp_path: Path, command: list[str]
) -> None:
    place = Path(shutil.copytree(read, tmp_path / "place"))
    before = positions(place)
    asyncio.run(create_log(place / "other", parts=4))
    told = operate(place, *command, "--feed=eventlog:other")
    assert (told.returncode, "the leases are about another feed" in told.stderr) == (2, True)
    assert positions(place) == before
    again = ("reset", "--all", "--to=now", "--yes", "--feed=eventlog:other")
    assert operate(place, *again).returncode == 0


@pytest.fixture(scope="module")
def read(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose log was read to its end, for tests that change nothing."""
    place = Path(shutil.copytree(made, tmp_path_factory.mktemp("read") / "place"))
    asyncio.run(read_once(place))
    return place


def test_a_range_that_has_ended_is_shown_as_that_and_not_operated_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made / "log", tmp_path / "log")
    monkeypatch.chdir(tmp_path)
    asyncio.run(with_an_ended_range())

    def told(*arguments: str) -> tuple[int, str]:
        ended = invoked(*arguments, cwd=tmp_path, env={"COLUMNS": "150"})
        return ended.returncode, ended.stdout + ended.stderr

    code, shown = told("status", *PLACES)
    assert (code, "2 leases (1 unowned, 1 ended)" in shown) == (0, True)
    reset = ("--to=beginning", "--yes")
    for command in (["pause"], ["resume"], ["pause", "--force"], ["reset", *reset]):
        code, said = told(command[0], RANGES[0], *command[1:], *PLACES)
        assert (code, f"range {RANGES[0]} has ended" in said) == (2, True), said
    assert told("pause", "--all", *PLACES) == (0, f"{RANGES[1]}: paused\n")
    code, said = told("reset", "--all", *reset, *PLACES)
    assert code == 0
    assert f"not read again, as they have ended: {RANGES[0]}" in said
    assert f"{RANGES[1]}: moved to" in said
    assert f"{RANGES[0]}: moved to" not in said


async def with_an_ended_range() -> None:
    async with (
        open_container("sqlite:leases.db") as container,
        open_feed("eventlog:log") as feed,
    ):
        for found in (await feed.ranges())[:2]:
            start = await feed.start(found, "now")
            lease = await container.create(make.lease(found, at=start))
            if found.id == RANGES[0]:
                await container.replace(lease.ended_in(make.CLOSED))
