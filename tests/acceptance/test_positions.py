"""A fleet's positions, saved before a risky deployment and given back after it."""

import json
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, a_log_of, changefeed, running, status

pytestmark = pytest.mark.real_time

HOST = ("run", *PLACES, *QUICK, "--name=anna", "--observer=count")
OTHER = ("--set=leases.ownership=sqlite:owners.db", "--set=leases.checkpoints=sqlite:done.db")
LOG = PLACES[0]


async def read_all(place: Path, count: int) -> None:
    async with running(*HOST, cwd=place) as host:
        await host.says('"event": "lease.acquired"', times=4)
        await host.reaches(lambda: sum(positions(place)) == count)
        host.process.send_signal(signal.SIGTERM)
        assert await host.ends() == 0


def positions(place: Path) -> list[int]:
    with closing(sqlite3.connect(place / "leases.db")) as leases:
        rows = leases.execute("select continuation from leases order by range_id").fetchall()
    return [int(x.partition("/")[2]) for (x,) in rows]


async def test_positions_are_saved_given_back_and_carried_to_another_kind_of_container(
    tmp_path: Path,
) -> None:
    a_log_of(100, tmp_path)
    await read_all(tmp_path, 100)
    saved = changefeed("positions", "save", "before.json", *PLACES, cwd=tmp_path)
    assert (saved.returncode, saved.stdout) == (0, "before.json: 4 leases\n"), saved.stderr
    before = positions(tmp_path)
    assert json.loads((tmp_path / "before.json").read_text())["feed"]

    moved = changefeed("reset", "--all", "--to=beginning", "--yes", *PLACES, cwd=tmp_path)
    assert (moved.returncode, sum(positions(tmp_path))) == (0, 0)
    restore = ("positions", "restore", "before.json")
    planned = changefeed(*restore, "--dry-run", *PLACES, cwd=tmp_path)
    assert planned.stdout.count("never delivered") == 4
    refused = changefeed(*restore, *PLACES, cwd=tmp_path, stdin="n\n")
    assert refused.returncode == 1
    assert sum(positions(tmp_path)) == 0
    done = changefeed(*restore, "--yes", *PLACES, cwd=tmp_path)
    assert (done.returncode, positions(tmp_path)) == (0, before), done.stderr

    planned = changefeed(*restore, "--dry-run", LOG, *OTHER, cwd=tmp_path)
    assert planned.stdout.count("created, 0 changes behind") == 4
    assert not (tmp_path / "owners.db").exists(), "a dry run creates nothing"
    elsewhere = changefeed(*restore, "--yes", LOG, *OTHER, cwd=tmp_path)
    assert (elsewhere.returncode, elsewhere.stdout.count(": created\n")) == (0, 4)
    shown = changefeed("status", "--json", LOG, *OTHER, cwd=tmp_path)
    assert [x["lag"] for x in json.loads(shown.stdout)["leases"]] == [0, 0, 0, 0]


async def test_while_a_host_lives_nothing_is_given_back(tmp_path: Path) -> None:
    a_log_of(20, tmp_path)
    async with running(*HOST, cwd=tmp_path) as host:
        await host.says('"event": "lease.acquired"', times=4)
        await host.reaches(lambda: sum(positions(tmp_path)) == 20)
        saved = changefeed("positions", "save", "-", *PLACES, cwd=tmp_path)
        (tmp_path / "at-start.json").write_text(saved.stdout.replace("/5", "/0"))
        said = changefeed(
            *("positions", "restore", "at-start.json", "--yes"), *PLACES, *QUICK, cwd=tmp_path
        )
        assert said.returncode == 2
        assert "anna lives: stop all hosts of the fleet first" in said.stderr
        assert sum(positions(tmp_path)) == 20
        assert {x["owner"] for x in status(tmp_path)["leases"]} == {"anna"}


async def test_what_is_no_file_is_written_into_and_never_replaced(tmp_path: Path) -> None:
    a_log_of(20, tmp_path)
    await read_all(tmp_path, 20)
    save = ("positions", "save")
    (tmp_path / "kept.json").write_text("of before")
    (tmp_path / "link.json").symlink_to("kept.json")
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    for name in ("pipe", "link.json"):
        said = changefeed(*save, name, *PLACES, cwd=tmp_path)
        assert (said.returncode, said.stdout) == (0, f"{name}: 4 leases\n"), said.stderr
    reader.join(20)
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link.json").is_symlink()
    kept = (tmp_path / "kept.json").read_text()
    assert [len(json.loads(x)["positions"]) for x in (*read, kept)] == [4, 4]
    for name in ("", ".", "/", str(tmp_path), "none/there", "n" * 300):
        said = changefeed(*save, name, *PLACES, cwd=tmp_path)
        assert said.returncode == 2, said.stderr
        assert "cannot be written" in said.stderr
