"""What a host says of itself and of its fleet, of what it knows anyway."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.claims import pause
from changefeed.host.endpoints import HostEndpoints
from changefeed.host.host import Host
from changefeed.host.status import look
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.looking import lease_in, start


async def fails_on_one(changes: Sequence[Change]) -> None:
    if changes[0].range_id == "r0":
        raise ValueError("no such table")


@asynccontextmanager
async def two_hosts() -> AsyncIterator[Fleet]:
    """Share four ranges, of which the observer fails on one; each range has had a change."""
    async with Fleet(ranges=4, observer=fails_on_one) as fleet:
        start(fleet, "ab")
        await fleet.balanced()
        for n in range(40):
            fleet.append(f"key-{n}")
        await asyncio.sleep(40)
        yield fleet


def owner(fleet: Fleet, name: str) -> Host:
    return next(x for x in fleet.hosts.values() if RangeId(name) in x.leases)


async def answer(host: Host, path: str) -> tuple[int, Any]:
    found = await HostEndpoints(host.name, None, {"": host}).answer(path)
    return found.status, json.loads(found.body)


async def test_a_host_with_a_failing_range_is_ready_and_names_it() -> None:
    async with two_hosts() as fleet:
        host = owner(fleet, "r0")
        status, said = await answer(host, "/readyz")
        assert (status, said["ready"], said["problems"]) == (200, True, [])
        (failing,) = said["ranges"]
        since = host.events.activity.of(RangeId("r0")).health.failing_since
        assert (failing["range"], failing["state"], failing["since"]) == (
            "r0",
            "failing",
            since,
        )
        assert failing["note"].endswith("on everything: ValueError: no such table")


async def test_a_host_reports_its_own_ranges_and_all_that_are_paused() -> None:
    async with two_hosts() as fleet:
        host = owner(fleet, "r0")
        other = next(x for x in fleet.hosts.values() if x is not host)
        paused = min(other.leases)
        await pause(fleet.container, [paused], "the disk is full")
        await asyncio.sleep(20)
        worker = host._pool.workers[min(host.leases)]  # type: ignore[union-attr]
        child = make.feed_range("child")
        worker.owned.lease = worker.owned.lease.ended_in(make.end(child))
        _, said = await answer(host, "/leases")
        states = {x["range"]: (x["state"], x["note"]) for x in said["ranges"]}
        assert states.keys() == {*host.leases, paused}
        assert states[paused] == ("paused", "the disk is full")


async def test_a_host_knows_figures_of_its_own_ranges_and_the_owners_of_all() -> None:
    async with two_hosts() as fleet:
        host = owner(fleet, "r0")
        seen = await look(host, None, None)
        assert {x.range: x.owner for x in seen.ranges} == {
            name: owner(fleet, name).name for name in ("r0", "r1", "r2", "r3")
        }
        assert [(x.name, x.state, x.total.ranges) for x in seen.hosts] == [
            ("a", "running", 2),
            ("b", "running", 2),
        ]
        own = {x.range: x for x in seen.ranges if x.owner == host.name}
        assert {x.range for x in seen.ranges if x.lag is not None} == own.keys()
        done = next(x for x in own.values() if x.range != "r0")
        stored = await lease_in(fleet.container, done.range)
        assert (done.state, done.position, done.lag) == ("idle", stored.position, 0)
        assert (done.checkpoint_at or 0) > (done.owned_since or 0) > 0
