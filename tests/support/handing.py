"""The observers of one range without a host: what they are handed, and what becomes of it."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

from changefeed.feeds.feed import Change, Position
from changefeed.host.settings import ObserverSettings
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.observers.call import Call
from changefeed.observers.dead_letters import DeadLetter, Origin
from changefeed.observers.dead_letters.memory import MemoryDeadLetters
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Successes
from changefeed.observers.observer import ObserverFactory
from changefeed.observers.range_observers import ObserverSetup, RangeObservers
from changefeed.observers.tracing import BatchTracing
from changefeed.runtime.logs import get_logger
from tests.support.observers import Gate

ORIGIN = Origin(feed="orders", observer="billing:Billing", fleet="sqlite:/data/leases.db")


class Told(FailureLog):
    """Remembers what failed: the attempt, and the error."""

    def __init__(self) -> None:
        super().__init__(get_logger())
        self.failures: list[tuple[int, str]] = []
        self.letters: list[DeadLetter] = []
        self.waiting = 0

    def keys_wait(self, *which: Any, **_: Any) -> None:
        self.waiting = len(which[1])

    def observer_retrying(
        self, range_id: Any, attempt: int, error: BaseException, delay: float
    ) -> None:
        self.failures.append((attempt, str(error)))
        super().observer_retrying(range_id, attempt, error, delay)

    def dead_letter(self, letter: DeadLetter) -> None:
        self.letters.append(letter)
        super().dead_letter(letter)


class Handing:
    """Hands changes to observers, as a worker does, and keeps what is done of them."""

    def __init__(
        self,
        observers: ObserverFactory,
        *,
        letters: MemoryDeadLetters | None = None,
        context: Gate | None = None,
        tracing: BatchTracing | None = None,
        **settings: Any,
    ) -> None:
        config = ObserverSettings.model_validate(settings)
        self.letters = MemoryDeadLetters() if letters is None else letters
        self.told = Told()
        gate = context or Gate()
        self.check, self.flush = gate.check, gate.flush
        self.range, self.host, self.epoch = gate.range, gate.host, gate.epoch
        self.handing_over, self.reset_epoch = False, 0
        self.successes = Successes()
        self._tracing = tracing
        self._progress = Progress(
            Checkpoint(Position("0")), lambda x: Position(str(x.sequence))
        )
        writer = LetterWriter(self.letters, ORIGIN)
        setup = ObserverSetup(
            observers,
            config,
            self.told,
            Random(1),
            letters=writer if config.on_failure == "dead-letter" else None,
            successes=self.successes,
        )
        self.observers = RangeObservers(setup, self, 1000)
        self.keys = self.observers.keys
        self._is_open = False

    async def process(self, changes: Sequence[Change], *, seconds: float = 1e5) -> None:
        """Hand changes over, until all are done or so much time is over. What a worker would
        stop for comes out.
        """
        self.read(changes)
        try:
            async with asyncio.timeout(seconds):
                await self._work()
        except TimeoutError:
            await self.observers.end()
            self.restart()

    async def _work(self) -> None:
        if not self._is_open:
            self._is_open = True
            await self.observers.open()
        while self._progress.unacknowledged:
            self.observers.moved.clear()
            if not await self.observers.give():
                await self.observers.wait()

    def read(self, changes: Sequence[Change]) -> None:
        self.keys.add(self._progress.read(changes, None))

    @property
    def left(self) -> list[int]:
        """The sequences of what is not done."""
        return [x.sequence for x in self._progress.open]

    async def put_aside(self) -> list[int]:
        return [x.sequence for x in await self.letters.list()]

    # what it is to the observers

    def begin(self, at: str) -> None:
        """Have no position."""

    def restart(self) -> None:
        self.keys.restart(self._progress.open)

    def was_read(self, change: Change) -> bool:
        return self._progress.was_read(change)

    def is_open(self, change: Change) -> bool:
        return self._progress.is_open(change)

    def acknowledge(self, changes: Sequence[Change]) -> None:
        self._progress.done(changes)
        self.observers.moved.set()

    def returned(self, changes: Sequence[Change]) -> None:
        self._progress.done(changes)

    def checkpoint_with(self, changes: Sequence[Change]) -> str:
        return self._progress.once_done(changes, self.keys.failures()).text

    async def in_call(self, name: str, changes: Sequence[Change], call: Call) -> None:
        del name
        tracing = self._tracing if changes else None
        with tracing.batch(self, changes) if tracing else nullcontext():
            await call(None)
