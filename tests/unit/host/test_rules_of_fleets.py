"""A fleet whose expiration and balance a rolling deployment changes, without a stop."""

import asyncio

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support.logs import captured_logs
from tests.support.looking import start

ADOPTED = 35.0
"""A host reads the record every half a minute."""


@pytest.mark.parametrize(("old", "new"), [(30.0, 6.0), (6.0, 60.0)])
async def test_a_rolling_deployment_changes_the_expiration_and_no_lease_is_lost(
    old: float, new: float
) -> None:
    leases = MemoryLeases()
    async with Fleet(MemoryFeed(6), leases, settings={"leases": {"expiration": old}}) as fleet:
        start(fleet, "abc")
        await fleet.balanced()
        await asyncio.sleep(60)
        with captured_logs("DEBUG") as logged:
            fleet.use(None, settings={"leases": {"expiration": new}})
            for name in "cab":
                await fleet.stop(name)
                fleet.start(name)
                await asyncio.sleep(20)
            await asyncio.sleep(100)
        released = [x["how"] for x in logged if x["event"] == "lease.released"]
        assert {*released} == {"released"}
        taken = [x for x in logged if x["event"] == "lease.acquired"]
        assert "expired" not in {x["how"] for x in taken}
        said = [x for x in logged if "expiration" in x]
        assert {x["expiration"] for x in said} == {new}
        hosts = fleet.hosts.values()
        assert {x.rules.shown.expiration for x in hosts} == {new}
        assert {x.rules.judged.expiration for x in hosts} == {new}
        assert await fleet.loads() == {"a": 2, "b": 2, "c": 2}
        assert (await leases.fleet()).before == 0.0


async def test_all_hosts_go_by_the_expiration_that_one_was_started_with() -> None:
    async with Fleet(MemoryFeed(4)) as fleet:
        start(fleet, "ab")
        await fleet.balanced()
        fleet.use(None, settings={"leases": {"expiration": 6}})
        with captured_logs() as logged:
            fleet.start("c")
            await asyncio.sleep(ADOPTED + 60)
        assert ["a", "b", "c"] in [x.get("members") for x in logged]
        await fleet.kill("b")
        await asyncio.sleep(10)
        assert (await fleet.loads()).keys() == {"a", "c"}
        assert sum((await fleet.loads()).values()) == 4


async def test_all_hosts_balance_as_one_was_started_to() -> None:
    async with Fleet(MemoryFeed(4)) as fleet:
        start(fleet, "ab")
        await fleet.balanced()
        assert {x.rules.balance for x in fleet.hosts.values()} == {"count"}
        fleet.use(None, settings={"leases": {"balance": "load"}})
        fleet.start("c")
        await asyncio.sleep(ADOPTED)
        assert {x.rules.balance for x in fleet.hosts.values()} == {"load"}
