"""Plain observers run in a thread of their own, and cannot be interrupted there."""

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import CloseReason, Context, Observer
from tests.support import make
from tests.support.logs import captured_logs

pytestmark = pytest.mark.real_time

CONTEXT = make.context()


async def opened(target: Any) -> Observer:
    observer = adapt(target)()
    await observer.open(CONTEXT)
    return observer


async def closed(observer: Observer) -> None:
    await observer.close(CONTEXT, CloseReason.STOPPING)


async def has_happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, 10)


class Keeper:
    """Keeps a SQLite handle, which raises when another thread uses it."""

    threads: set[int]

    def __init__(self) -> None:
        self.threads = {threading.get_ident()}
        self.database = sqlite3.connect(":memory:")

    def open(self, _context: Context) -> None:
        self.database.execute("create table seen (sequence integer)")

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        for x in changes:
            self.database.execute("insert into seen values (?)", (x.sequence,))
        context.checkpoint(changes[-1])

    def close(self, context: Context, _reason: CloseReason) -> None:
        (total,) = self.database.execute("select sum(sequence) from seen").fetchone()
        context.checkpoint(make.change(total * 100))
        self.database.close()


async def test_a_plain_class_sees_one_thread_from_its_constructor_to_its_close() -> None:
    context = make.context()
    observer = adapt(Keeper)()
    await observer.open(context)
    await observer.process(context, [make.change(1), make.change(2)])
    await observer.close(context, CloseReason.STOPPING)
    assert context.checkpoints == [2, 300]


async def test_each_observer_has_a_thread_of_its_own_and_not_the_loop_s() -> None:
    seen: list[str] = []
    both = threading.Barrier(2, timeout=10)

    def work(_changes: Sequence[Change]) -> None:
        both.wait()  # passed only if two threads are here at once
        seen.append(threading.current_thread().name)

    first, second = await opened(work), await opened(work)
    await asyncio.gather(
        first.process(CONTEXT, [make.change(1)]), second.process(CONTEXT, [make.change(1)])
    )
    await closed(first)
    await closed(second)
    assert seen == ["observer of r1", "observer of r1"]


async def test_async_methods_alone_run_on_the_loop_and_constructors_never_do() -> None:
    on_loop: list[bool] = []

    def note() -> None:
        on_loop.append(threading.current_thread() is threading.main_thread())

    class Mixed:
        def __init__(self) -> None:
            note()

        def open(self, _context: Context) -> None:
            note()

        async def process(self, _changes: Sequence[Change]) -> None:
            note()

    observer = await opened(Mixed)
    await observer.process(CONTEXT, [make.change(1)])
    await closed(observer)
    assert on_loop == [False, False, True]


class NeedsLoop:
    def __init__(self) -> None:
        self.client = asyncio.get_running_loop().create_future()

    async def process(self, _changes: Sequence[Change]) -> None: ...


async def test_a_constructor_that_needs_the_loop_is_told_where_there_is_one() -> None:
    with pytest.raises(RuntimeError, match=r"NeedsLoop.*'async def open'"):
        await opened(NeedsLoop)


class Blocked:
    """A function that goes on until it is let go, and what became of it."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()

    def __call__(self, _changes: Sequence[Change]) -> None:
        self.begun.set()
        assert self.let_go.wait(10)
        self.ended.set()


async def test_a_cancelled_call_returns_only_after_the_function_has_ended() -> None:
    work = Blocked()
    observer = await opened(work)
    task = asyncio.create_task(observer.process(CONTEXT, [make.change(1)]))
    await has_happened(work.begun)
    task.cancel()
    await asyncio.sleep(0.02)
    assert not task.done()
    work.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended.is_set()
    await closed(observer)


async def test_a_second_cancellation_gives_up_and_close_still_comes_after() -> None:
    work = Blocked()
    order: list[str] = []

    class Slow:
        def process(self, changes: Sequence[Change]) -> None:
            work(changes)
            order.append("process ended")

        async def close(self, _context: Context, _reason: CloseReason) -> None:
            order.append("close")

    observer = await opened(Slow)
    task = asyncio.create_task(observer.process(CONTEXT, [make.change(1)]))
    await has_happened(work.begun)
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not work.ended.is_set()
    closing = asyncio.create_task(closed(observer))
    await asyncio.sleep(0.01)
    work.let_go.set()
    await closing
    assert order == ["process ended", "close"]


async def test_a_call_that_was_given_up_before_it_began_never_begins() -> None:
    work = Blocked()
    handled: list[int] = []

    def handle(changes: Sequence[Change]) -> None:
        work(changes)
        handled.append(changes[0].sequence)

    observer = await opened(handle)
    for sequence in (1, 2):  # the second waits behind the first
        task = asyncio.create_task(observer.process(CONTEXT, [make.change(sequence)]))
        await has_happened(work.begun)
        for _ in range(2):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
    work.let_go.set()
    await closed(observer)
    assert handled == [1]


@pytest.mark.parametrize("cancellations", [1, 2], ids=["cancelled", "given up"])
async def test_a_failure_after_cancellation_is_logged_because_nobody_awaits_it(
    cancellations: int,
) -> None:
    work = Blocked()

    def fail(changes: Sequence[Change]) -> None:
        work(changes)
        raise LookupError("too late")

    observer = await opened(fail)
    task = asyncio.create_task(observer.process(CONTEXT, [make.change(1)]))
    await has_happened(work.begun)
    with captured_logs() as logs:
        for _ in range(cancellations):
            task.cancel()
            await asyncio.sleep(0)
        work.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await closed(observer)  # comes after it in the thread
    assert [(x["kind"], x["error"]) for x in logs] == [("LookupError", "too late")]
