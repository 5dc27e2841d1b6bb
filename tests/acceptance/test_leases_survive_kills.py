"""Real processes over real SQLite files, killed at whatever they are doing."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Self

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.addresses import open_stores
from changefeed.leases.lease import Lease
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.real_time

HOSTS, KILLS, RANGES = 3, 6, 2
ROOT = Path(__file__).parents[2]


async def test_every_epoch_has_one_winner_and_no_checkpoint_goes_back(
    tmp_path: Path,
) -> None:
    files = ("ownership.db", "checkpoints.db")
    addresses = [f"sqlite:{tmp_path / name}" for name in files]
    async with open_stores(addresses[0], addresses[1]) as leases:
        for n in range(RANGES):
            place = FeedRange(id=RangeId(f"r{n}"))
            await leases.create(Lease(range=place, continuation=Continuation("0")))
        reports = await killed_again_and_again(addresses)
        last = [x for n in range(RANGES) if (x := await leases.read(RangeId(f"r{n}")))]
    for name in files:
        with closing(sqlite3.connect(tmp_path / name)) as connection:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    check(reports, last)


class Contender:
    """A process that wins leases, and what it has reported so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.reports: list[list[str]] = []
        self.reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, host: str, addresses: list[str]) -> Self:
        module = ("-m", "tests.acceptance.lease_contender", host)
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, *module, *addresses), cwd=ROOT, stdin=DEVNULL, stdout=PIPE
            )
        )

    async def works(self) -> None:
        """Wait until it has reported some more."""
        wanted = len(self.reports) + 20
        async with asyncio.timeout(PATIENCE):
            while len(self.reports) < wanted:
                assert not self.reading.done()
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.endswith(b"\n"):
                self.reports.append(line.decode().split())
        await self.process.wait()


async def killed_again_and_again(addresses: list[str]) -> list[list[str]]:
    chance = Random(7)
    all_of_them = [await Contender.start(f"host{n}", addresses) for n in range(HOSTS)]
    living = [*all_of_them]
    try:
        for n in range(KILLS):
            for x in living:
                await x.works()
            await asyncio.sleep(chance.random() / 5)
            victim = chance.randrange(HOSTS)
            living[victim].process.kill()
            living[victim] = await Contender.start(f"host{HOSTS + n}", addresses)
            all_of_them.append(living[victim])
        for x in living:
            await x.works()
    finally:
        for x in living:
            x.process.kill()
        for x in all_of_them:
            await x.reading
    return [line for x in all_of_them for line in x.reports]


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
