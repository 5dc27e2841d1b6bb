"""When a checkpoint is due, and what the one writer writes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from changefeed.feeds.feed import Position
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.checkpointer import Checkpointer
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Progress
from changefeed.leases.lease import HostName, Incarnation
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.proxies import proxied
from tests.support import make
from tests.support.calls import Calls
from tests.support.looking import lease_in, now

NONE: Mapping[int, int] = {}
A, A1 = HostName("a"), Incarnation("a-1")


class Slow:
    """A container whose checkpoints take so many seconds each."""

    def __init__(self, seconds: float = 5.0) -> None:
        self.leases = MemoryLeases()
        self.calls = Calls(lasting={"checkpoint": seconds})

    async def stored(self) -> str | None:
        return (await lease_in(self.leases)).position


@asynccontextmanager
async def writing(
    slow: Slow, failures: Mapping[int, int] = NONE, **settings: Any
) -> AsyncIterator[tuple[Progress, Checkpointer]]:
    await slow.leases.create(make.lease(at="0"))
    owned = await make.owned(proxied(slow.leases, slow.calls))
    events = HostEvents(A)
    async with asyncio.TaskGroup() as group:
        progress = Progress(owned.stored, MemoryFeed(1).position_after)
        writer = Checkpointer(
            owned,
            ObserverSettings.model_validate(settings),
            progress,
            failures=lambda: failures,
            start=group.create_task,
            events=events,
            retrier=Retrier(events, Random(1)),
        )
        yield progress, writer
        await writer.stop()


def reach(progress: Progress, writer: Checkpointer, position: str) -> None:
    batch = [make.change(int(position))]
    writer.returned(progress.read(batch, Position(position)))
    writer.advance()


async def test_of_the_positions_said_meanwhile_only_the_newest_is_written() -> None:
    slow = Slow()
    async with writing(slow) as (progress, writer):
        reach(progress, writer, "1")
        await asyncio.sleep(1)
        for position in "234":
            reach(progress, writer, position)
        await asyncio.sleep(4.5)
        assert (await slow.stored(), writer.reached.text) == ("1", "4")
        await asyncio.sleep(5)
        assert (await slow.stored(), writer.reached.text) == ("4", "4")


async def test_a_position_without_changes_is_written() -> None:
    slow = Slow()
    async with writing(slow) as (progress, writer):
        progress.read([], Position("9"))
        writer.advance()
        await writer.written()
        assert await slow.stored() == "9"


async def test_a_write_under_way_does_not_count_for_what_was_said_after_it() -> None:
    async with writing(Slow()) as (progress, writer):
        reach(progress, writer, "1")
        first = asyncio.create_task(writer.written())
        await asyncio.sleep(1)
        reach(progress, writer, "2")
        await first
        assert asyncio.get_running_loop().time() == 5
        await writer.written()
        assert asyncio.get_running_loop().time() == 10


async def test_what_is_in_hand_and_what_is_done_and_not_stored_are_together_so_many() -> None:
    changes = [make.change(n) for n in range(1, 17)]
    async with writing(Slow(), max_unacknowledged=20) as (progress, writer):
        writer.returned(progress.read(changes[:8], Position("8")))
        progress.read(changes[8:], Position("16"))
        assert (await writer.room_for(4), now()) == (True, 0)
        assert (await writer.room_for(5), now()) == (True, 5)


async def test_what_a_write_could_not_say_is_not_stored_though_the_next_one_can() -> None:
    slow = Slow()
    async with writing(slow, max_unacknowledged=2) as (progress, writer):
        first, other, second = (make.change(n, key=key) for n, key in enumerate("aba", start=1))
        progress.read([first, other, second], Position("3"))
        progress.done([other, second])
        writer.advance()
        await writer.written()
        progress.done([first])
        writer.advance()  # so the next can say of the second that it is done
        assert await writer.room_for(1)
        assert await slow.stored() == "3"


async def test_the_last_write_says_what_counts_against_a_change_by_then() -> None:
    failures = dict[int, int]()
    async with writing(Slow(), failures) as (progress, writer):
        failing, other = make.change(1, key="a"), make.change(2, key="b")
        progress.read([failing, other], Position("2"))
        progress.done([other])
        writer.advance()
        await writer.written()
        failures[1] = 3  # others succeeded elsewhere
        await writer.stop()
        assert [x.failures for x in writer.reached.holes] == [3]


async def test_who_stops_it_waits_for_the_write_under_way_and_gets_the_rest() -> None:
    slow = Slow()
    async with writing(slow) as (progress, writer):
        reach(progress, writer, "1")
        await asyncio.sleep(1)
        reach(progress, writer, "2")
        await writer.stop()
        assert writer.reached.text == "2"
        assert asyncio.get_running_loop().time() == 5
        await asyncio.sleep(60)
        assert await slow.stored() == "1"  # the last write of the lease carries the other


async def test_however_fast_batches_come_a_tenth_of_the_time_goes_into_writing() -> None:
    slow = Slow(0.01)
    async with writing(slow) as (progress, writer):
        for n in range(1, 2001):
            reach(progress, writer, str(n))
            await asyncio.sleep(0.001)
        assert 19 <= slow.calls.count["checkpoint"] <= 21  # in two seconds


@pytest.mark.parametrize(
    ("mode", "due"),
    [
        ("batch", [True, True, True, True, True, True]),
        ("5", [False, True, False, False, True, False]),
        ("manual", [False] * 6),
    ],
)
async def test_a_checkpoint_is_due_after_each_batch_a_time_or_never(
    mode: str, due: list[bool]
) -> None:
    """Each batch has 4 changes; they end at 3, 6, 7, 9, 12 and 13 seconds."""
    written, slow = list[bool](), Slow(0.1)
    async with writing(slow, checkpoint=mode) as (progress, writer):
        for n, end in enumerate((3, 6, 7, 9, 12, 13)):
            await asyncio.sleep(end - now())
            before = slow.calls.count["checkpoint"]
            batch = [make.change(4 * n + m) for m in range(4)]
            left = progress.read(batch, Position(str(4 * n + 3)))
            if mode != "manual":
                writer.returned(left)
            await asyncio.sleep(0.5)
            written.append(slow.calls.count["checkpoint"] > before)
    assert written == due
