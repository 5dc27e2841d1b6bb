"""Whole hosts whose observers fail: what is put aside, what pauses; nothing is lost."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import Change, Feed, FeedRange, Position, RangeId
from changefeed.fleet.claims import resume
from changefeed.fleet.reshape import merge, split
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import Failure, UserError
from changefeed.testing.fleet import Fleet, Sections
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.looking import in_order, lease_in, now, start
from tests.support.odd_errors import Unprintable
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

R0 = RangeId("r0")
START = Position("0")
DEAD_LETTER = {"on_failure": "dead-letter"}
STOP_RANGE = {"on_failure": "stop-range", "retry": {"attempts": 3}}


def number(change: Change) -> int:
    return int(change.value()["n"])


class Failing:
    """An observer that raises at some changes, and remembers its calls: when, with how many."""

    def __init__(
        self,
        fails_on: Callable[[Change], bool] = lambda _: True,
        raises: Callable[[], BaseException] = lambda: ValueError("no such table"),
    ) -> None:
        self._fails_on = fails_on
        self._raises = raises
        self.calls: list[tuple[float, int]] = []

    async def process(self, changes: Sequence[Change]) -> None:
        self.calls.append((now(), len(changes)))
        if any(map(self._fails_on, changes)):
            raise self._raises()


def fleet_of(
    observer: Failing, feed: Feed, settings: dict[str, Any], **of_feed: object
) -> Fleet:
    sections = {"observer": settings, "feed": of_feed}
    return Fleet(feed, settings=sections, observer=observer.process)


async def put_aside(fleet: Fleet) -> list[int]:
    return [number(x.change) for x in await fleet.dead_letters()]


def delivered(fleet: Fleet) -> list[int]:
    return sorted(number(x) for x in fleet.log.changes)


def behind(poison: Sequence[int]) -> list[int]:
    """Return the later changes of the same keys, of 2000 of 50 keys."""
    return [n for x in poison for n in range(x + 50, 2000, 50)]


def all_but(changes: int, *poison: int) -> list[int]:
    return [n for n in range(changes) if n not in poison]


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_poison_is_put_aside_and_everything_else_is_delivered(concurrency: int) -> None:
    poison = [0, 1234, 1235, 1999]
    observer = Failing(lambda x: number(x) in poison)
    settings = {**DEAD_LETTER, "concurrency": concurrency}
    feed = make.memory_feed(4, 2000)
    async with fleet_of(observer, feed, settings) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(10)
        assert delivered(fleet) == all_but(2000, *poison, *behind(poison))
        for _ in range(10):  # where nothing else comes, nothing tells a change from an outage
            await asyncio.sleep(60)
            for n in range(50):
                feed.append(f"late-{n}", b'{"n": -1}')
        await asyncio.sleep(10)
        assert not {*all_but(2000, *poison, *behind(poison))} - {*delivered(fleet)}
        for _ in range(20):  # where nothing else comes, nothing tells a change from an outage
            await asyncio.sleep(60)
            for n in range(50):
                feed.append(f"late-{n}", b'{"n": -1}')
        await asyncio.sleep(100)
        assert sorted(await put_aside(fleet)) == poison
        assert [n for n in delivered(fleet) if n >= 0] == all_but(2000, *poison)
        assert in_order(fleet.log.changes)
        assert set((await fleet.lags()).values()) == {0}


async def test_a_key_that_waits_is_told_until_it_is_done_though_others_go_on() -> None:
    observer = Failing(lambda x: number(x) == 5 and now() < 200)
    async with fleet_of(observer, make.memory_feed(1, 20), {}) as fleet:
        fleet.start("a")
        await asyncio.sleep(190)
        assert delivered(fleet) == all_but(20, 5)
        health = (await lease_in(fleet.container)).health
        assert health.waiting == 1
        assert health.failing_since is not None
        oldest = health.oldest
        assert oldest is not None
        assert (oldest.key, oldest.sequence, oldest.tries) == ("key-5", 6, 11)
        assert oldest.error == "ValueError: no such table"
        assert -1 < (oldest.next_try or 0) - time.time() < 60
        await asyncio.sleep(190)
        assert delivered(fleet) == all_but(20)
        assert not (await lease_in(fleet.container)).health.has_problem


async def test_a_range_that_is_full_says_once_for_which_keys_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Failing(lambda x: x.key in {"key-5", "key-7"} and now() < 200)
    feed = make.memory_feed(1, 1000)
    async with fleet_of(observer, feed, {"max_unacknowledged": 8}) as fleet:
        fleet.start("a")
        await asyncio.sleep(190)
        assert len(delivered(fleet)) < 300
        full = [x.message for x in caplog.records if x.message.startswith("range.full")]
        assert len(full) == 1
        assert "range=r0" in full[0]
        assert "keys=['key-5', 'key-7']" in full[0]
        await fleet.caught_up()
        assert delivered(fleet) == all_but(1000)


async def test_nothing_done_behind_keys_that_wait_comes_again_in_parts_split_or_merged() -> (
    None
):
    healed = asyncio.Event()
    observer = Failing(lambda x: x.key in {"key-5", "key-30"} and not healed.is_set())
    async with fleet_of(observer, make.memory_feed(1, 400), {}) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(30)
        assert len(delivered(fleet)) == 400 - 2 * 8
        leased = make.leased(fleet.feed, fleet.container)
        parts = [x.id for x in await split(leased, R0, 2)]
        await asyncio.sleep(60)
        assert sorted(await fleet.owners()) == sorted(parts)
        assert len(delivered(fleet)) == 400 - 2 * 8
        with pytest.raises(UserError, match="keys wait"):
            await merge(leased, parts, patience=5)
        healed.set()
        merged = await merge(leased, parts, patience=100)
        fleet.append("key-5", {"n": 400})
        await fleet.caught_up()
        assert [*await fleet.owners()] == [merged.id]
        assert delivered(fleet) == list(range(401))
        assert in_order(fleet.log.changes)


async def test_nothing_done_behind_a_key_that_waits_comes_again_where_the_feed_splits() -> None:
    store, healed = ShiftingStore(), asyncio.Event()
    for n in range(40):
        store.append(f"k{n % 20}", b'{"n": %d}' % n)
    observer = Failing(lambda x: x.key == "k5" and not healed.is_set())
    async with fleet_of(observer, ShiftingReader(store), {}, start="beginning") as fleet:
        fleet.start("a")
        await asyncio.sleep(30)
        await fleet.stop("a")
        store.split(store.physical[0].id)
        fleet.start("b")
        await asyncio.sleep(60)
        assert delivered(fleet) == all_but(40, 5, 25)
        healed.set()
        await fleet.caught_up()
        assert delivered(fleet) == list(range(40))
        assert in_order(fleet.log.changes)


async def test_a_range_that_stops_is_paused_for_all_hosts_until_it_is_resumed() -> None:
    broken = [True]
    observer = Failing(lambda x: x.range_id == R0 and x.sequence == 7 and broken[0])
    feed = make.memory_feed(4, 400)
    async with fleet_of(observer, feed, STOP_RANGE, page_size=5) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(300)
        lease = await lease_in(fleet.container)
        assert (lease.owner, lease.position) == (None, "6")
        assert lease.paused is not None
        assert "7..7" in lease.paused
        assert "ValueError: no such table" in lease.paused
        assert (R0, CloseReason.FAILED) in [x[1:] for x in fleet.log.closed]
        assert sum(r == R0 for _, r in fleet.log.opened) == 1
        assert len(fleet.log.changes) == 392  # there are 8 of its key
        assert sorted((await fleet.loads()).values()) == [1, 2]
        for host in fleet.hosts.values():
            assert host.events.paused == {R0: lease.paused}

        broken[0] = False
        await fleet.stop("b")
        assert await resume(fleet.container, [R0]) == [R0]
        await asyncio.sleep(30)
        assert delivered(fleet) == all_but(400)
        assert in_order(fleet.log.changes)
        assert fleet.hosts["a"].events.paused == {}


async def test_a_range_whose_observer_cannot_open_yet_stops_for_nobody() -> None:
    class Away:
        async def open(self, _context: Context) -> None:
            if now() < 300:
                raise OSError("no database")

        async def process(self, changes: Sequence[Change]) -> None: ...

    settings: Sections = {"observer": STOP_RANGE}
    async with Fleet(make.memory_feed(1, 10), settings=settings, observer=Away) as fleet:
        fleet.start("a")
        await asyncio.sleep(280)
        lease = await lease_in(fleet.container)
        assert (lease.owner, lease.paused) == ("a", None)
        assert lease.health.failing_since is not None
        await fleet.caught_up()
        assert delivered(fleet) == all_but(10)


# What is no plain exception


async def test_whatever_the_error_says_a_range_that_stops_is_paused_for_it() -> None:
    observer = Failing(lambda x: number(x) == 3, raises=lambda: ValueError("\ud800" * 600))
    async with fleet_of(observer, make.memory_feed(1, 10), STOP_RANGE) as fleet:
        fleet.start("a")
        await asyncio.sleep(100)
        paused = (await lease_in(fleet.container)).paused
        assert paused is not None
        assert "ValueError: \\ud800" in paused
        assert len(paused) <= 500
        assert not fleet.running["a"].done()


@pytest.mark.parametrize("kind", [Unprintable, SystemExit])
async def test_whatever_a_close_raises_the_lease_is_released(kind: type[BaseException]) -> None:
    class Closing:
        async def process(self, changes: Sequence[Change]) -> None: ...

        async def close(self, _context: Context, _reason: CloseReason) -> None:
            raise kind

    async with Fleet(make.memory_feed(1, 10), observer=Closing) as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        await fleet.stop("a")
        assert (await lease_in(fleet.container)).owner is None
        assert [reason for _, _, reason in fleet.log.closed] == [CloseReason.STOPPING]


@pytest.mark.parametrize("observer", [{}, {"concurrency": 4}, {"timeout": 3600.0}])
async def test_what_an_observer_makes_of_the_deadline_of_a_handoff_does_not_count_as_done(
    observer: dict[str, Any],
) -> None:
    done: list[tuple[str, int]] = []

    class Swallowing:
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if context.host == "a":
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1e6)
                return
            done.extend((x.range_id, x.sequence) for x in changes)

    feed = make.memory_feed(2, 20)
    async with Fleet(feed, settings={"observer": observer}, observer=Swallowing) as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        fleet.start("b")
        await asyncio.sleep(600)
        owners = await fleet.owners()
        assert set(owners.values()) == {"a", "b"}
        (moved,) = [x for x, owner in owners.items() if owner == "b"]
        there_are = await lag_of(feed, FeedRange(id=moved), START)
        assert there_are
        assert sorted(done) == [(moved, n) for n in range(1, there_are + 1)]


@pytest.mark.parametrize(
    "observer",
    [
        {"retry": {"attempts": None}},
        {"retry": {"attempts": 10}},
        {"on_failure": "stop-range"},
    ],
)
async def test_an_observer_without_memory_ends_its_host_and_gives_up_the_range(
    observer: dict[str, Any],
) -> None:
    failing = Failing(raises=MemoryError)
    async with fleet_of(failing, make.memory_feed(1, 10), observer) as fleet:
        fleet.start("a")
        with pytest.raises(Failure, match="out of memory"):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert len(failing.calls) < 15
        assert [reason for _, _, reason in fleet.log.closed] == [CloseReason.FAILED]
        lease = await lease_in(fleet.container)
        assert (lease.owner, lease.paused) == (None, None)


# What the feed refuses


@pytest.mark.parametrize(
    "checkpoints",
    [{}, {"checkpoint": 3600}],
    ids=["written at once", "put off"],
)
async def test_a_range_that_the_feed_refuses_is_paused_and_the_others_go_on(
    checkpoints: dict[str, Any],
) -> None:
    feed = make.memory_feed(4, 400)

    async def damaged(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        answer = await call()
        of_r0 = name == "read" and R0 in {x.range_id for x in answer.changes}
        if of_r0 and int(answer.position) > 5:
            raise RangeDamaged(R0, "it cannot be read")
        return answer

    sections = {"observer": checkpoints, "feed": {"page_size": 5}}
    async with Fleet(proxied(feed, damaged), settings=sections) as fleet:
        start(fleet, "ab")
        await asyncio.sleep(120)
        lease = await lease_in(fleet.container)
        assert (lease.paused, lease.owner, lease.position) == (
            "it cannot be read",
            None,
            "5",
        )
        of_ranges = {
            f"r{n}": await lag_of(feed, FeedRange(id=RangeId(f"r{n}")), START)
            for n in range(1, 4)
        }
        assert Counter(x.range_id for x in fleet.log.changes) == of_ranges | {"r0": 5}
        assert not any(x.done() for x in fleet.running.values())
        assert sorted((await fleet.loads()).values()) == [1, 2]
