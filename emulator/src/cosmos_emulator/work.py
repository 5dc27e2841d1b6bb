"""Queries beside the loop: while a thread works on one, other requests are answered.

The store belongs to the loop: a thread asks the loop for the next rows. Threads are daemons, so
that none keeps the process from ending. A query that nobody waits for any more stops at its
next step.

Limits: threads take turns every few milliseconds, so each one that works makes the others
slower. ``_MAX_AT_ONCE`` work at once; further queries wait for their turn within their budget.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import Any, Final, Protocol, TypeVar

from cosmos_emulator.query import run as queries
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.given import NO_POLICIES, ContainerPolicies
from cosmos_emulator.query.run import Query, ResultPage
from cosmos_emulator.store import Row

T = TypeVar("T")
_MAX_AT_ONCE: Final = 8
_SHORT: Final = 4_096  # characters of a query, read within a few milliseconds
_FIRST_ROWS: Final = 200
_MAX_ROWS: Final = 6_400  # read within a few milliseconds

ReadRows = Callable[[int, int], list[Row]]
"""Gives (number, JSON text) of what is numbered above the first argument, by number, at most
so many.
"""


class Ask(Protocol):
    """Runs a question on the loop, where the store is, and gives its answer to a thread."""

    def __call__(self, question: Callable[[], T], /) -> T: ...


class Work:
    """Runs queries of one emulator, each page within ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._free = asyncio.Semaphore(_MAX_AT_ONCE)

    async def parsed(
        self, body: Mapping[str, Any], *, now: float, policies: ContainerPolicies = NO_POLICIES
    ) -> Query:
        """Read the body of a query request."""
        budget = Budget(self._seconds)

        def parse() -> Query:
            return queries.parsed(body, now=now, budget=budget, policies=policies)

        if len(str(body.get("query"))) <= _SHORT:
            return parse()
        return await self.beside(budget, parse)

    async def page(
        self, query: Query, read: ReadRows, *, limit: int | None, continuation: str | None
    ) -> ResultPage:
        """Run a query over rows that are read on this loop."""
        ask = asking(asyncio.get_running_loop())

        def rows(after: int) -> Iterable[Row]:
            most = _FIRST_ROWS
            while True:
                found = ask(partial(read, after, most))
                yield from found
                if len(found) < most:
                    return
                after, most = found[-1][0], min(2 * most, _MAX_ROWS)

        def run() -> ResultPage:
            with contextlib.closing(query.given.functions):
                return queries.run(rows, query, limit=limit, continuation=continuation)

        return await self.beside(query.given.budget, run)

    async def beside(self, budget: Budget, job: Callable[[], T]) -> T:
        """Do something in a thread, and wait for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():
                return
            if error is None:
                done.set_result(result)  # type: ignore[arg-type]
            else:
                done.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = job()
            except BaseException as raised:  # noqa: BLE001 - it is raised where it is waited for
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        async with self._free:
            Thread(target=work, name="query", daemon=True).start()
            try:
                return await done
            except asyncio.CancelledError:
                budget.stop()
                raise


def asking(loop: asyncio.AbstractEventLoop) -> Ask:
    """Return what asks a loop something from a thread, and waits for the answer."""

    def asked(question: Callable[[], T]) -> T:
        answer: Future[T] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread
                answer.set_exception(error)

        loop.call_soon_threadsafe(ask)
        return answer.result()

    return asked
