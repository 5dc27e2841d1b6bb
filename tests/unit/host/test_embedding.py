"""A host as a guest in somebody's program: what it shares with that, and how it leaves."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry import metrics
from prometheus_client import generate_latest

from changefeed import (
    Change,
    CloseReason,
    Context,
    FeedUnavailable,
    Host,
    MemoryFeed,
    MemoryLeases,
    Settings,
    StoreRefused,
    StoreUnavailable,
    open_host,
)
from changefeed.host import wiring
from changefeed.leases.fleet_record import require_feed
from changefeed.leases.lease import FleetRecord
from changefeed.observers.dead_letters import MemoryDeadLetters, Origin
from tests.support.logs import captured_logs
from tests.support.looking import now


class Seen:
    """What the observers of one host saw."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.reasons: list[CloseReason] = []
        self.in_hand = asyncio.Event()
        self.seconds = 0.0

    async def process(self, changes: Sequence[Change]) -> None:
        self.in_hand.set()
        await asyncio.sleep(self.seconds)
        self.keys += [x.key for x in changes]


def observer_of(seen: Seen) -> type:
    class Observing:
        async def process(self, changes: Sequence[Change]) -> None:
            await seen.process(changes)

        async def close(self, _: Context, reason: CloseReason) -> None:
            seen.reasons.append(reason)

    return Observing


def named(name: str, **sections: Any) -> Settings:
    return Settings.model_validate({"host": {"name": name}, **sections})


@asynccontextmanager
async def guest(
    seen: Seen, feed: MemoryFeed, leases: MemoryLeases, name: str = "anna", **sections: Any
) -> AsyncIterator[Host]:
    async with open_host(
        named(name, **sections), observer_of(seen), feed=feed, leases=leases
    ) as host:
        yield host


async def nothing_is_left(leases: MemoryLeases) -> bool:
    owners = {x.owner for x in await leases.list()}
    return not await leases.members() and owners <= {None}


async def test_a_host_that_is_cancelled_twice_stops_at_once_and_still_leaves() -> None:
    seen, feed, leases = Seen(), MemoryFeed(1), MemoryLeases()
    seen.seconds = 1000.0
    feed.append("k", b"1")
    async with guest(seen, feed, leases, host={"name": "anna", "stop_timeout": 60}) as host:
        running = asyncio.create_task(host.run())
        await seen.in_hand.wait()
        began = now()
        running.cancel()
        await asyncio.sleep(1)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert now() - began < 5
        assert seen.keys == []
        assert await nothing_is_left(leases)


async def test_a_host_that_is_cancelled_in_the_middle_of_joining_leaves_no_record() -> None:
    class Slow(MemoryLeases):
        async def put_member(self, member: Any) -> Any:
            stored = await super().put_member(member)
            await asyncio.sleep(5)
            return stored

    leases = Slow()
    async with guest(Seen(), MemoryFeed(1), leases) as host:
        running = asyncio.create_task(host.run())
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert list(await leases.members()) == []


async def test_letters_say_by_which_observer_and_where_its_fleet_keeps_the_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, origins = MemoryFeed(1), list[Origin]()

    monkeypatch.setattr(wiring, "Origin", lambda **said: origins.append(Origin(**said)))
    leases = {"address": f"sqlite:{tmp_path}/leases.db"}
    for name in (None, "bills"):
        settings = named("anna", leases=leases, observer={"name": name})
        async with open_host(settings, Seen().process, feed=feed):
            pass
    where = {"feed": feed.identity, "fleet": leases["address"]}
    by_default = f"{__name__}:Seen.process"
    assert origins == [Origin(observer=x, **where) for x in (by_default, "bills")]


async def test_two_hosts_of_one_process_share_a_feed_and_no_figures() -> None:
    seen = {"anna": Seen(), "ben": Seen()}
    feed, leases = MemoryFeed(4), MemoryLeases()
    configuration = structlog.get_config()
    provider, logger_class = metrics.get_meter_provider(), logging.getLoggerClass()
    signals = {x: signal.getsignal(x) for x in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    async with (
        guest(seen["anna"], feed, leases, "anna") as anna,
        guest(seen["ben"], feed, leases, "ben") as ben,
    ):
        running = [asyncio.create_task(x.run()) for x in (anna, ben)]
        await asyncio.sleep(60)
        assert (len(anna.leases), len(ben.leases)) == (2, 2)
        for n in range(40):
            feed.append(f"key-{n}")
        await asyncio.sleep(60)
        for host in (anna, ben):
            count = sum(
                float(x.rpartition(" ")[2])
                for x in figures(host).splitlines()
                if x.startswith("changefeed_changes_total")
            )
            assert count == len(seen[host.name].keys) > 0
            assert "\nchangefeed_lease_owned " in figures(host)
        anna.stop()
        await running[0]
        assert not running[1].done()
        await asyncio.sleep(60)
        assert len(ben.leases) == 4
        ben.stop()
        await running[1]
    assert len(seen["anna"].keys) + len(seen["ben"].keys) == 40
    assert metrics.get_meter_provider() is provider
    assert logging.getLoggerClass() is logger_class
    assert structlog.get_config() == configuration
    assert {x: signal.getsignal(x) for x in signals} == signals


def figures(host: Host) -> str:
    assert host.registry is not None
    return generate_latest(host.registry).decode()


class Away:
    """Opens at the third attempt; until then the store does not answer."""

    def __init__(self, store: object, error: Exception) -> None:
        self._store = store
        self._error = error
        self.attempts = 0

    def __call__(self, *_: object) -> Any:
        @asynccontextmanager
        async def opened() -> AsyncIterator[object]:
            self.attempts += 1
            if self.attempts < 3:
                raise self._error
            yield self._store

        return opened()


async def test_stores_that_are_away_at_a_start_are_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Away(MemoryFeed(1), FeedUnavailable("no route"))
    leases = Away(MemoryLeases(), StoreUnavailable("refused"))
    letters = Away(MemoryDeadLetters(), StoreUnavailable("no answer"))
    monkeypatch.setattr(wiring, "open_feed", feed)
    monkeypatch.setattr(wiring, "open_container", leases)
    monkeypatch.setattr(wiring, "open_dead_letters", letters)
    settings = named("anna", observer={"on_failure": "dead-letter"})
    with captured_logs() as logged:
        async with open_host(settings, observer_of(Seen())):
            assert (feed.attempts, leases.attempts, letters.attempts) == (3, 3, 3)
    said = [(x["operation"], x["error"]) for x in logged if x["event"] == "call.failed"]
    assert said == [
        *[("open feed", "no route")] * 2,
        *[("open leases", "refused")] * 2,
        *[("open dead letters", "no answer")] * 2,
    ]


async def test_the_leases_of_a_host_are_guarded_against_another_feed() -> None:
    """Whoever writes positions through ``host.container`` may compare feeds there."""
    async with guest(Seen(), MemoryFeed(1), MemoryLeases()) as host:
        running = asyncio.ensure_future(host.run())
        await asyncio.sleep(20)
        await require_feed(host.container, host.feed.identity)
        with pytest.raises(StoreRefused, match="about another feed"):
            await require_feed(host.container, "the feed that was there before")
        host.stop()
        await running


async def test_a_store_that_goes_away_while_a_host_starts_is_waited_for() -> None:
    class AwayOnce(MemoryLeases):
        asked = 0

        async def fleet(self) -> FleetRecord:
            self.asked += 1
            if self.asked == 1:
                raise StoreUnavailable("gone")
            return await super().fleet()

    leases = AwayOnce()
    async with guest(Seen(), MemoryFeed(1), leases):
        assert leases.asked == 2
