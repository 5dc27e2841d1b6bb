"""What a task does with the changes it is handed, without Spark."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from changefeed.feeds.feed import Change, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.log.format.arrow_columns import TIME
from changefeed.observers.dead_letters import Origin, open_dead_letters
from changefeed.observers.errors import ObserverFailed, ObserverStuck
from changefeed.observers.judge import Successes
from changefeed.observers.observer import CloseReason, Context
from changefeed.observers.registry import observer
from changefeed.observers.settings import RetrySettings
from changefeed.pipeline.observing import Task, pages
from changefeed.pipeline.settings import ObserverSettings
from changefeed.runtime.settings import LogSettings
from tests.support import make

pytestmark = pytest.mark.usefixtures("steady_delays")

RETRY = RetrySettings(max_delay=20, attempts=3)


@pytest.fixture(autouse=True)
def _nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    # Kept for as long as the process: a change that one test puts aside on suspicion would have
    # that of the next wait for a success.
    monkeypatch.setattr("changefeed.pipeline.observing._successes", Successes())
    Fussy.story, Fussy.poison, Fussy.well_from = [], frozenset(), 0.0


@observer("fussy")
class Fussy:
    """Tells what it is told; fails on some changes, and on all before a time."""

    story: ClassVar[list[object]] = []
    poison: ClassVar[frozenset[int]] = frozenset()
    well_from: ClassVar[float] = 0.0

    async def open(self, context: Context) -> None:
        self.story.append(f"open {context.range.id} epoch {context.epoch}")

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        now = asyncio.get_running_loop().time()
        numbers = [x.sequence for x in changes]
        if now < self.well_from or self.poison.intersection(numbers):
            raise OSError(f"not {numbers}")
        self.story.append((context.range.id, numbers))

    async def close(self, context: Context, reason: CloseReason) -> None:
        self.story.append(f"close {context.range.id} {reason.name}")


def some(range_id: str, *sequences: int) -> Sequence[Change]:
    return [make.change(x, range_id=range_id, key=f"k{x}") for x in sequences]


async def handed(settings: ObserverSettings, *pages: Sequence[Change], epoch: int = 1) -> None:
    """Let a task deliver pages as Spark hands them to it."""
    task = Task(settings=settings, log=LogSettings(), origin=Origin(feed="f"), epoch=epoch)
    await task.deliver(iter(pages))


def putting_aside(tmp_path: Path, **more: Any) -> ObserverSettings:
    return ObserverSettings(
        name="fussy",
        retry=RetrySettings(max_delay=0.001, attempts=2),
        on_failure="dead-letter",
        dead_letters=f"sqlite:{tmp_path / 'letters.db'}",
        **more,
    )


@pytest.mark.parametrize("time_us", [0, 1_767_225_600_000_001, 2**63 - 1, -(2**63)])
def test_a_change_keeps_its_time_whatever_calendars_say(time_us: int) -> None:
    ((found,),) = pages(batch_of([make.change(committed_us=time_us)]))
    assert found.committed_us == time_us


async def test_each_range_has_an_observer_of_its_own_and_its_changes_in_order() -> None:
    settings = ObserverSettings(name="fussy")
    await handed(settings, some("a", 1, 2), some("a", 3), some("b", 1), epoch=7)
    assert Fussy.story == [
        "open a epoch 7",
        ("a", [1, 2]),
        ("a", [3]),
        "close a STOPPING",
        "open b epoch 7",
        ("b", [1]),
        "close b STOPPING",
    ]


async def test_what_hosts_have_done_behind_their_position_is_not_given_again() -> None:
    holes = (Hole(hash_of("k2"), 2, 1), Hole(hash_of("k4"), 4))
    task = Task(
        settings=ObserverSettings(name="fussy"),
        log=LogSettings(),
        origin=Origin(feed="f"),
        epoch=1,
        done={RangeId("r1"): Checkpoint(Position("1"), 5, holes)},
    )
    await task.deliver(iter([some("r1", 2, 3), some("r1", 4, 5, 6), some("r2", 2, 3)]))
    assert [x for x in Fussy.story if isinstance(x, tuple)] == [
        ("r1", [2]),
        ("r1", [4, 6]),
        ("r2", [2, 3]),
    ]


async def test_stop_on_failure_fails_the_task_and_closes_the_observer() -> None:
    Fussy.poison = frozenset({2})
    settings = ObserverSettings(name="fussy", retry=RETRY, on_failure="stop")
    with pytest.raises(ObserverFailed, match=r"2\.\.2 of range 'a'"):
        await handed(settings, some("a", 1, 2))
    assert Fussy.story == ["open a epoch 1", ("a", [1]), "close a FAILED"]


async def test_stop_on_failure_outlasts_an_outage_as_a_host_does() -> None:
    Fussy.well_from = asyncio.get_running_loop().time() + 30.0
    settings = ObserverSettings(name="fussy", retry=RETRY, on_failure="stop")
    await handed(settings, some("a", 1, 2, 3, 4))
    assert Fussy.story.count("close a FAILED") > 1


@pytest.mark.real_time
async def test_the_change_it_fails_on_is_put_aside_and_all_others_are_done(
    tmp_path: Path,
) -> None:
    Fussy.poison = frozenset({3})
    settings = putting_aside(tmp_path)
    await handed(settings, some("a", 1, 2, 3, 4), some("b", 9), epoch=5)
    async with open_dead_letters(settings.dead_letters) as letters:
        (letter,) = await letters.list()
    assert (letter.feed, letter.range_id, letter.sequence) == ("f", "a", 3)
    assert (letter.epoch, letter.error) == (5, "not [3]")
    done = [(x[0], y) for x in Fussy.story if isinstance(x, tuple) for y in x[1]]
    assert sorted(done) == [("a", 1), ("a", 2), ("a", 4), ("b", 9)]


@pytest.mark.real_time
async def test_an_outage_that_outlives_batches_costs_one_letter(tmp_path: Path) -> None:
    Fussy.well_from = float("inf")
    settings = putting_aside(tmp_path)
    await handed(settings, some("z", 1))
    with pytest.raises(TimeoutError):  # the next batch waits for better times
        async with asyncio.timeout(0.5):
            await handed(settings, some("z", 2), epoch=2)
    async with open_dead_letters(settings.dead_letters) as letters:
        assert [x.sequence for x in await letters.list()] == [1]


@pytest.mark.real_time
async def test_an_observer_that_is_stuck_fails_the_task_and_is_not_called_again() -> None:
    @observer("stuck")
    class Stuck:
        def process(self, changes: Sequence[Change]) -> None:
            Fussy.story.append(len(changes))
            time.sleep(0.6)

        def close(self, context: Context, reason: CloseReason) -> None:
            Fussy.story.append((context.range.id, reason))

    settings = ObserverSettings(name="stuck", retry=RETRY, timeout=0.1)
    with pytest.raises(ObserverStuck, match="range 'a'"):
        await handed(settings, some("a", 1))
    await asyncio.sleep(0.7)
    assert Fussy.story == [1]


def batch_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """Return the changes as Spark hands them to a task."""
    rows = [
        {
            "range": x.range_id,
            "sequence": x.sequence,
            "key": x.key,
            "id": x.id,
            "operation": x.operation.value,
            "body": x.body.decode(),
            "previous": None,
        }
        for x in changes
    ]
    times = pa.array([x.committed_us for x in changes]).cast(TIME)
    return pa.RecordBatch.from_pylist(rows).append_column("committed_at", times)


@pytest.mark.real_time
async def test_each_query_puts_a_letter_of_its_own_for_a_change(tmp_path: Path) -> None:
    Fussy.poison = frozenset({3})
    settings = putting_aside(tmp_path)
    queries = {("orders", "/a"), ("orders", "/b"), ("invoices", "/b")}
    for feed, checkpoint in queries:
        origin = Origin(feed=feed, observer="fussy", fleet=checkpoint)
        task = Task(settings=settings, log=LogSettings(), origin=origin, epoch=1)
        await asyncio.to_thread(task, iter([batch_of(some("a", 1, 2, 3, 4))]))
    async with open_dead_letters(settings.dead_letters) as letters:
        found = await letters.list()
    assert {(x.feed, x.fleet) for x in found} == queries
    assert {(x.observer, x.sequence) for x in found} == {("fussy", 3)}
    assert len({x.id for x in found}) == 3
