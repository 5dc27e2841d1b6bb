"""A machine that sleeps: the loop's clock stands still then, those of other machines do not."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Change
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.liveness import living_hosts
from changefeed.host import load_meter
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_host
from changefeed.host.worker import Worker
from changefeed.leases.lease import HostName, Incarnation, Member
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.observer import Context
from changefeed.testing.lease_cast import not_refused
from tests.support import make

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has it"),
]

QUICK = {"expiration": 5.0}


def sleep_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + 3600)


def loads(workers: Sequence[Worker]) -> list[float]:
    return [x.described(x.owned.lease).load or 0 for x in workers]


async def test_a_host_acts_on_no_lease_that_it_has_not_renewed_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load_meter, "_MIN_SPAN", 0.1)
    both_opened, may_go_on = asyncio.Barrier(3), asyncio.Event()

    class Waiting:
        async def open(self, _: Context) -> None:
            await both_opened.wait()
            await may_go_on.wait()

        async def process(self, _: Sequence[Change]) -> None:
            """Have nothing to do."""

    settings = Settings.model_validate({"host": {"name": "a"}, "leases": QUICK})
    async with open_host(settings, Waiting, feed=MemoryFeed(2), leases=MemoryLeases()) as host:
        running = asyncio.create_task(host.run())
        async with asyncio.timeout(20):
            await both_opened.wait()
        assert host._pool is not None
        workers = [*host._pool.workers.values()]
        assert sum(x.owned.may_act for x in workers) == 2
        await asyncio.sleep(0.2)
        assert all(0 < x <= 1 for x in loads(workers))
        may_go_on.set()
        await asyncio.sleep(0.1)
        sleep_for_an_hour(monkeypatch)
        assert not any(x.owned.may_act for x in workers)
        assert (host.health.last_listing or 0) > 3590
        await asyncio.sleep(0.2)
        assert all(x > 0 for x in loads(workers))  # an hour of rest would leave nothing
        host.stop()
        await running


async def test_hosts_that_slept_along_are_given_the_time_to_show_that_they_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leases = MemoryLeases()
    new = Member(name=HostName("a"), incarnation=Incarnation("a-1"))
    member = not_refused(await leases.put_member(new))
    watch = make.fleet_watch(5.0)

    async def sleep_and_go_on() -> None:
        await asyncio.sleep(0.7)
        sleep_for_an_hour(monkeypatch)
        await asyncio.sleep(1.0)
        await leases.put_member(replace(member, heartbeats=member.heartbeats + 1))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleep_and_go_on())
        assert await living_hosts(leases, watch) == {"a": ""}
