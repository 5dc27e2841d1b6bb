"""``changefeed doctor`` over an event log: what is wrong between its partitions and leases."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from changefeed.feeds.feed import RangeId
from changefeed.leases.fleet_record import join_fleet
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from tests.support import make
from tests.support.commands import PLACES, invoked
from tests.support.sqlite_leases import SqliteLeases
from tests.support.succession import replace_partitions

WHOLE = RangeId("e1.p01.v00-ff")


async def a_log(place: Path, *, parts: int = 1) -> None:
    await create_log(place / "log", parts=parts)


async def leased(place: Path) -> None:
    """Give each partition a lease that was owned already, at its beginning."""
    async with EventLog.open(place / "log") as log, SqliteLeases(place / "leases.db") as leases:
        await join_fleet(leases, log.identity)
        for found in await log.ranges():
            start = await log.start(found, "beginning")
            alone = replace(found, parents=())
            await leases.create(make.lease(alone, at=start, epoch=1))


async def check(place: Path) -> tuple[int, list[tuple[str, str]]]:
    """Run the command; return its code, and what it says of leases."""
    done = await asyncio.to_thread(invoked, "doctor", "--watch=0", *PLACES, "--json", cwd=place)
    found = [x for x in json.loads(done.stdout) if x["about"] == "leases"]
    return done.returncode, [(x["severity"], x["text"]) for x in found]


async def test_leases_that_hold_each_partition_once_are_fine(tmp_path: Path) -> None:
    await a_log(tmp_path, parts=3)
    await leased(tmp_path)
    assert await check(tmp_path) == (0, [("ok", "3 leases, 0 hosts")])


async def test_a_lease_that_is_read_beside_its_parent_overlaps(tmp_path: Path) -> None:
    await a_log(tmp_path)
    low, _ = await replace_partitions(tmp_path / "log", [WHOLE], [(0, 0, 127), (0, 128, 255)])
    await leased(tmp_path)
    code, found = await check(tmp_path)
    assert (code, [x for x, _ in found]) == (2, ["ok", "problem", "problem", "ok"])
    assert f"range {WHOLE} (p01.v000 to p01.v100) and range {low}" in found[1][1]


async def test_leases_of_a_log_that_was_recreated_are_a_problem(tmp_path: Path) -> None:
    await a_log(tmp_path)
    await leased(tmp_path)
    (tmp_path / "log").rename(tmp_path / "older")
    await a_log(tmp_path)
    code, found = await check(tmp_path)
    assert (code, found[1][0], "deleted and recreated" in found[1][1]) == (2, "problem", True)
