"""Real processes over real SQLite files, killed at whatever they are doing."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.lease import Lease
from tests.acceptance.lease_contender import opened

pytestmark = pytest.mark.real_time

HOSTS, KILLS, RANGES = 3, 6, 2


@pytest.mark.parametrize("files", [["leases.db"], ["ownership.db", "checkpoints.db"]])
async def test_every_epoch_has_one_winner_and_no_checkpoint_goes_back(
    tmp_path: Path, files: list[str]
) -> None:
    addresses = [f"sqlite:{tmp_path / name}" for name in files]
    async with opened(addresses) as leases:
        for n in range(RANGES):
            place = FeedRange(id=RangeId(f"r{n}"))
            await leases.create(Lease(range=place, continuation=Continuation("0")))
        reports = await killed_again_and_again(addresses)
        last = [x for n in range(RANGES) if (x := await leases.read(RangeId(f"r{n}")))]
    for name in files:
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    check(reports, last)


async def killed_again_and_again(addresses: list[str]) -> list[list[str]]:
    chance = Random(7)
    processes = [await start(f"host{n}", addresses) for n in range(HOSTS)]
    reading = [asyncio.ensure_future(lines_of(x)) for x in processes]
    try:
        for n in range(KILLS):
            await asyncio.sleep(0.3 + chance.random() / 5)
            victim = chance.randrange(HOSTS)
            processes[victim].kill()
            processes[victim] = await start(f"host{HOSTS + n}", addresses)
            reading.append(asyncio.ensure_future(lines_of(processes[victim])))
        await asyncio.sleep(0.8)
        assert [x.returncode for x in processes] == [None] * HOSTS
    finally:
        for process in processes:
            process.kill()
        reports = await asyncio.gather(*reading)
        for process in processes:
            await process.wait()
    return [line for lines in reports for line in lines]


async def start(host: str, addresses: list[str]) -> Process:
    module = "tests.acceptance.lease_contender"
    root = Path(__file__).parents[2]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, host, *addresses, cwd=root, stdin=DEVNULL, stdout=PIPE
    )


async def lines_of(process: Process) -> list[list[str]]:
    assert process.stdout is not None
    lines = [line.decode().split() async for line in process.stdout if line.endswith(b"\n")]
    await process.wait()
    return lines


def check(reports: list[list[str]], last: list[Lease]) -> None:
    starts: dict[tuple[str, int], int] = {}
    reached: dict[tuple[str, int], int] = defaultdict(int)
    for what, range_id, number, position in reports:
        key = (range_id, int(number))
        if what == "won":
            assert key not in starts, f"two winners of {range_id} in epoch {number}"
            starts[key] = int(position)
        reached[key] = max(reached[key], int(position))
    for lease in last:
        epochs = sorted(epoch for range_id, epoch in starts if range_id == lease.range_id)
        assert len(epochs) > 10, "the hosts hardly got to work"
        highest = 0
        for epoch in epochs:
            assert starts[lease.range_id, epoch] >= highest, "a checkpoint went back"
            highest = max(highest, reached[lease.range_id, epoch])
        assert lease.continuation is not None
        assert int(lease.continuation) >= highest
        assert lease.epoch >= epochs[-1]
