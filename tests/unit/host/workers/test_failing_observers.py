"""Whole hosts whose observers fail: what is put aside, what pauses; nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec
import pytest

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import Change, Continuation, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.events import HostEvents
from changefeed.host.settings import ObserverSettings
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.operations.pause import resume
from changefeed.observers.dead_letters import DeadLetter, MemoryDeadLetters, Origin
from changefeed.observers.error_text import kind_of
from changefeed.observers.errors import ObserverExhausted
from changefeed.observers.middleware.stack import wrap
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.fleet import Fleet, FleetLog, LoggingObserver
from tests.support import make
from tests.support.looking import in_order, lease_in, now, until
from tests.support.our_errors import OUR_ERRORS
from tests.support.proxies import proxied

START = Continuation("0")


@dataclass(kw_only=True)
class Stage:
    """A feed, and a fleet whose observers fail on what ``fails_on`` says."""

    feed: MemoryFeed
    observer: dict[str, Any]
    fails_on: Callable[[Change], bool] = lambda _: False
    raises: Callable[[Change], BaseException] = lambda x: ValueError(
        f"cannot take {x.sequence}"
    )
    pace: float = 0.0
    observers: Callable[["Stage"], Any] | None = None
    container: MemoryLeases = field(default_factory=MemoryLeases)
    letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    log: FleetLog = field(default_factory=FleetLog)
    calls: list[tuple[float, int]] = field(default_factory=list)

    def fleet(self, **feed: object) -> Fleet:
        settings = ObserverSettings.model_validate(self.observer)
        aside = settings.on_failure == "dead-letter"
        return Fleet(
            self.feed,
            self.container,
            settings={"observer": self.observer, "feed": feed},
            make_observer=wrap(
                lambda: (self.observers or Failing)(self),
                settings,
                HostEvents(HostName("fleet")),
                Random(1),
                dead_letters=self.letters if aside else None,
                origin=Origin(feed=self.feed.identity),
            ),
        )

    async def put_aside(self) -> list[int]:
        return [x.change.value()["n"] for x in await self.letters.list()]

    async def lease(self, range_id: str = "r0") -> Lease:
        return await lease_in(self.container, range_id)

    def delivered(self) -> list[int]:
        return [x.value()["n"] for x in self.log.changes]


class Failing(LoggingObserver):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.log, pace=stage.pace)
        self._stage = stage

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self._stage.calls.append((now(), len(changes)))
        for change in changes:
            if self._stage.fails_on(change):
                raise self._stage.raises(change)
        await super().process(context, changes)


def number_in(*numbers: int) -> Callable[[Change], bool]:
    return lambda change: change.value()["n"] in numbers


DEAD_LETTER = {"on_failure": "dead-letter"}
STOP_RANGE = {"on_failure": "stop-range", "retry": {"attempts": 3}}


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_poison_is_put_aside_and_everything_else_is_delivered(concurrency: int) -> None:
    poison = [0, 1234, 1235, 1999]
    stage = Stage(
        feed=make.memory_feed(4, 2000),
        observer={**DEAD_LETTER, "concurrency": concurrency},
        fails_on=number_in(*poison),
    )
    async with stage.fleet() as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(1500)
        assert sorted(await stage.put_aside()) == poison
        assert sorted(stage.delivered()) == [n for n in range(2000) if n not in poison]
        assert in_order(stage.log.changes)
        for found in await stage.feed.ranges():
            end = await stage.lease(found.id)
            assert end.continuation is not None
            assert await stage.feed.lag(found.id, end.continuation) == 0


async def test_an_outage_puts_nothing_aside_and_is_never_asked_fast() -> None:
    stage = Stage(
        feed=make.memory_feed(2, 400), observer=DEAD_LETTER, fails_on=lambda _: now() < 4 * 3600
    )
    async with stage.fleet() as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(4 * 3600)
        assert stage.log.delivered == []
        assert len(stage.calls) / 2 < 4 * 3600 / 7  # for each range
        await asyncio.sleep(600)
        assert await stage.put_aside() == []
        assert sorted(stage.delivered()) == list(range(400))
        assert in_order(stage.log.changes)


async def test_a_host_killed_while_it_isolates_repeats_no_half_that_is_done() -> None:
    stage = Stage(feed=make.memory_feed(1, 1000), observer=DEAD_LETTER, fails_on=number_in(900))
    async with stage.fleet() as fleet:
        fleet.start("a")
        await until(lambda: any(size == 1 for _, size in stage.calls))
        await asyncio.sleep(5)
        await fleet.kill("a")
        assert (await stage.lease()).continuation == "900"
        fleet.start("b")
        await asyncio.sleep(1000)
        assert await stage.put_aside() == [900]
        assert sorted(stage.delivered()) == [n for n in range(1000) if n != 900]


async def test_by_default_a_failing_observer_is_opened_anew_again_and_again() -> None:
    stage = Stage(feed=make.memory_feed(1, 10), observer={}, fails_on=lambda _: now() < 3600)
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(3600)
        closed = [reason for _, _, reason in stage.log.closed]
        assert set(closed) == {CloseReason.FAILED}
        assert 10 < len(closed) < 3600 / 120
        assert len(stage.log.opened) in (len(closed), len(closed) + 1)
        await asyncio.sleep(100)
        assert stage.delivered() == list(range(10))


async def test_a_range_that_stops_is_paused_for_all_hosts_until_it_is_resumed() -> None:
    broken = [True]
    stage = Stage(
        feed=make.memory_feed(4, 400),
        observer=STOP_RANGE,
        fails_on=lambda x: x.range_id == "r0" and x.sequence == 7 and broken[0],
    )
    async with stage.fleet(page_size=5) as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(300)
        lease = await stage.lease()
        assert lease.owner is None
        assert lease.continuation == "5"
        assert lease.paused == (
            "the observer failed on sequences 6..10 of range 'r0', 3 attempts: "
            "ValueError: cannot take 7"
        )
        assert ("r0", CloseReason.FAILED) in [x[1:] for x in stage.log.closed]
        assert sum(r == "r0" for _, r in stage.log.opened) == 1
        others = sum(x.range_id != "r0" for x in stage.log.changes)
        assert len(stage.delivered()) == others + 5
        assert sorted((await fleet.loads()).values()) == [1, 2]
        for host in fleet.hosts.values():
            assert host.paused == {"r0": lease.paused}

        broken[0] = False
        await fleet.stop("b")
        assert await resume(stage.container, [RangeId("r0")]) == ["r0"]
        await asyncio.sleep(30)
        assert stage.delivered() != sorted(stage.delivered())
        assert sorted(stage.delivered()) == list(range(400))
        assert in_order(stage.log.changes)
        assert fleet.hosts["a"].paused == {}


# What is no plain exception


class PanicException(BaseException):
    """What an extension in Rust raises when it panics."""


class Unprintable(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize(
    "error",
    [
        SystemExit(),
        KeyboardInterrupt(),
        GeneratorExit(),
        PanicException(),
        asyncio.CancelledError(),
        Unprintable(),
        MemoryError(),
        *OUR_ERRORS,
    ],
    ids=kind_of,
)
async def test_whatever_a_poison_change_raises_it_is_put_aside_and_no_host_ends(
    error: BaseException, concurrency: int
) -> None:
    stage = Stage(
        feed=make.memory_feed(2, 200),
        observer={**DEAD_LETTER, "concurrency": concurrency, "retry": {"attempts": 2}},
        fails_on=number_in(77),
        raises=lambda _: error,
    )
    async with stage.fleet() as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(100)
        assert await stage.put_aside() == [77]
        assert [x.failure.kind for x in await stage.letters.list()] == [kind_of(error)]
        assert sorted(stage.delivered()) == [n for n in range(200) if n != 77]
        assert {x.epoch for x in await stage.container.list()} <= {1, 2}
        assert not any(x.done() for x in fleet.running.values())


class EncodedLetters(MemoryDeadLetters):
    """Keeps them as files and databases do: in UTF-8."""

    async def put(self, letter: DeadLetter) -> None:
        await super().put(msgspec.json.decode(msgspec.json.encode(letter), type=DeadLetter))


class PrintableOnce(ValueError):
    printed = False

    def __str__(self) -> str:
        if self.printed:
            raise RuntimeError("no text")
        self.printed = True
        return "the first time"


ODD_TEXTS = [
    (lambda: ValueError("no such town: \ud800"), "ValueError: no such town: \\ud800"),
    (lambda: ValueError("nul \0 byte"), "ValueError: nul \\x00 byte"),
    (PrintableOnce, "PrintableOnce: the first time"),
]


@pytest.mark.parametrize(("error", "text"), ODD_TEXTS)
async def test_whatever_the_error_of_a_poison_change_says_it_is_put_aside(
    error: Callable[[], BaseException], text: str
) -> None:
    stage = Stage(
        feed=make.memory_feed(1, 100),
        observer={**DEAD_LETTER, "retry": {"attempts": 2}},
        letters=EncodedLetters(),
        fails_on=number_in(77),
        raises=lambda _: error(),
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(100)
        assert await stage.put_aside() == [77]
        (kept,) = [x.failure for x in await stage.letters.list()]
        assert f"{kept.kind}: {kept.text}" == text
        assert sorted(stage.delivered()) == [n for n in range(100) if n != 77]
        assert not fleet.running["a"].done()


@pytest.mark.parametrize(("error", "text"), ODD_TEXTS)
async def test_whatever_the_error_says_a_range_that_stops_is_paused_for_it(
    error: Callable[[], BaseException], text: str
) -> None:
    stage = Stage(
        feed=make.memory_feed(1, 10),
        observer=STOP_RANGE,
        fails_on=lambda _: True,
        raises=lambda _: error(),
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(100)
        paused = (await stage.lease()).paused
        begin = "the observer failed on sequences 1..10 of range 'r0', 3 attempts: "
        assert paused == begin + text
        assert not fleet.running["a"].done()


async def test_the_reason_of_a_pause_is_cut() -> None:
    stage = Stage(
        feed=make.memory_feed(1, 10),
        observer=STOP_RANGE,
        fails_on=lambda _: True,
        raises=lambda _: ValueError("x" * 600),
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(100)
        begin = "the observer failed on sequences 1..10 of range 'r0', 3 attempts: ValueError: "
        assert (await stage.lease()).paused == begin + (500 - len(begin)) * "x"


@pytest.mark.parametrize("kind", [PrintableOnce, Unprintable, SystemExit])
async def test_whatever_a_close_raises_the_lease_is_released(kind: type[BaseException]) -> None:
    class Closing(Failing):
        async def close(self, context: Context, reason: CloseReason) -> None:
            await super().close(context, reason)
            raise kind

    stage = Stage(feed=make.memory_feed(1, 10), observer={}, observers=Closing)
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        await fleet.stop("a")
        assert (await stage.lease()).owner is None
        assert [reason for _, _, reason in stage.log.closed] == [CloseReason.STOPPING]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), *OUR_ERRORS], ids=kind_of)
async def test_an_observer_that_decides_for_its_host_is_called_again_later_and_later(
    error: BaseException,
) -> None:
    stage = Stage(
        feed=make.memory_feed(1, 10),
        observer={},
        fails_on=lambda _: True,
        raises=lambda _: error,
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(600)
        assert 10 < len(stage.calls) < 100
        assert (await stage.lease()).epoch == 1  # it was never given up and taken again


def cancelling_itself(error: BaseException) -> BaseException:
    """Cancel the task that the observer is called in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return error


@pytest.mark.parametrize("observer", [{}, {"concurrency": 4}, {"timeout": 5.0}])
@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("x")], ids=kind_of)
async def test_an_observer_that_cancels_its_own_task_is_called_again_later_and_later(
    error: BaseException, observer: dict[str, Any]
) -> None:
    stage = Stage(
        feed=make.memory_feed(1, 10),
        observer=observer,
        fails_on=lambda _: True,
        raises=lambda _: cancelling_itself(error),
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(600)
        lanes = observer.get("concurrency", 1)
        assert 10 < len(stage.calls) / lanes < 100
        lease = await stage.lease()
        assert (lease.owner, lease.epoch) == ("a", 1)
        assert lease.health.failing_since is not None
        assert {reason for _, _, reason in stage.log.closed} == {CloseReason.FAILED}


@pytest.mark.parametrize("observer", [{}, {"concurrency": 4}, {"timeout": 3600.0}])
async def test_what_an_observer_makes_of_the_deadline_of_a_handoff_does_not_count_as_done(
    observer: dict[str, Any],
) -> None:
    class Swallowing(Failing):
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            if context.host == "a":
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1e6)
                return
            await super().process(context, changes)

    stage = Stage(feed=make.memory_feed(2, 20), observer=observer, observers=Swallowing)
    async with stage.fleet() as fleet:
        fleet.start("a")
        await asyncio.sleep(10)
        fleet.start("b")
        await asyncio.sleep(600)
        owners = await fleet.owners()
        assert set(owners.values()) == {"a", "b"}
        (moved,) = [x for x, owner in owners.items() if owner == "b"]
        there_are = await stage.feed.lag(moved, START)
        assert there_are > 0
        assert {host for host, _, _ in stage.log.delivered} == {"b"}
        assert stage.log.times == {(moved, n): 1 for n in range(1, there_are + 1)}


def caused_by_missing_memory() -> BaseException:
    error = RuntimeError("cannot sort the batch")
    error.__cause__ = MemoryError()
    return error


@pytest.mark.parametrize(
    "observer",
    [
        {"retry": {"attempts": None}},
        {"retry": {"attempts": 10}},
        {"on_failure": "stop-range"},
    ],
)
@pytest.mark.parametrize(
    "error",
    [
        MemoryError,
        lambda: ExceptionGroup("tasks", [MemoryError()]),
        lambda: BaseExceptionGroup("tasks", [MemoryError(), SystemExit()]),
        caused_by_missing_memory,
    ],
)
async def test_an_observer_without_memory_ends_its_host_and_gives_up_the_range(
    error: Callable[[], BaseException], observer: dict[str, Any]
) -> None:
    stage = Stage(
        feed=make.memory_feed(1, 10),
        observer=observer,
        fails_on=lambda _: True,
        raises=lambda _: error(),
    )
    async with stage.fleet() as fleet:
        fleet.start("a")
        with pytest.raises(ObserverExhausted, match="ran out of memory"):
            await asyncio.wait_for(fleet.running["a"], 60)
        assert len(stage.calls) == 3
        assert [reason for _, _, reason in stage.log.closed] == [CloseReason.FAILED]
        lease = await stage.lease()
        assert (lease.owner, lease.paused) == (None, None)


# What the feed refuses


@pytest.mark.parametrize(
    "checkpoints",
    [{}, {"checkpoint": "interval", "checkpoint_interval": 3600.0}],
    ids=["written at once", "put off"],
)
async def test_a_range_that_the_feed_refuses_is_paused_and_the_others_go_on(
    checkpoints: dict[str, Any],
) -> None:
    feed = make.memory_feed(4, 400)

    async def damaged(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == "read":
            page = await call()
            if page.changes and page.changes[0].range_id == "r0" and int(page.continuation) > 5:
                raise RangeDamaged(RangeId("r0"), "the changes of range 'r0' cannot be read")
            return page
        return await call()

    stage = Stage(feed=proxied(feed, damaged), observer=checkpoints)
    async with stage.fleet(page_size=5) as fleet:
        for name in "ab":
            fleet.start(name)
        await asyncio.sleep(120)
        lease = await stage.lease()
        assert lease.paused == "the changes of range 'r0' cannot be read"
        assert (lease.owner, lease.continuation) == (None, "5")
        assert sum(x.range_id == "r0" for x in stage.log.changes) == 5
        others = [x for x in stage.log.changes if x.range_id != "r0"]
        assert len(others) == sum([await feed.lag(RangeId(f"r{n}"), START) for n in (1, 2, 3)])
        assert not any(x.done() for x in fleet.running.values())
        assert sorted((await fleet.loads()).values()) == [1, 2]
