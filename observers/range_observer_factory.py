"""From the user's observer to those of a range, on hosts and in tasks of Spark."""

from dataclasses import dataclass, field
from random import Random
from typing import Literal, Protocol

from changefeed.feeds.feed import RangeId
from changefeed.observers.call import CalledObserver, RangeContext
from changefeed.observers.dead_letters import DeadLetters, Origin
from changefeed.observers.dead_letters.writer import LetterWriter
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.judge import Judge, Successes
from changefeed.observers.key_scheduler import KeyScheduler
from changefeed.observers.observer import ObserverFactory
from changefeed.observers.observer_context import ObserverContext
from changefeed.observers.range_observers import RangeObservers, Runner
from changefeed.observers.retry import GrowingDelays, RetrySettings
from changefeed.runtime.light_event import LightEvent


class ObservingSettings(Protocol):
    """What the settings say about it."""

    @property
    def checkpoint(self) -> str | float:
        """When checkpoints are written; ``manual`` leaves it to the user to say so."""
        ...

    @property
    def concurrency(self) -> int: ...

    @property
    def timeout(self) -> float | None: ...

    @property
    def retry(self) -> RetrySettings: ...

    @property
    def on_failure(self) -> str:
        """With ``retry`` nothing is put aside."""
        ...

    @property
    def ordering(self) -> Literal["key", "range"]: ...


@dataclass(frozen=True, slots=True)
class RangeObserverFactory:
    """Makes what delivers the ranges of one host: their keys, and their observers.

    Without ``dead_letters`` nothing is put aside; with them, ``origin`` distinguishes these
    letters from those of others in the same place. Give ``successes`` where this does not live
    as long as the process.
    """

    make: ObserverFactory
    settings: ObservingSettings
    events: FailureLog
    random: Random
    dead_letters: DeadLetters | None = field(default=None, kw_only=True)
    origin: Origin | None = field(default=None, kw_only=True)
    successes: Successes = field(default_factory=Successes, kw_only=True)

    @property
    def letter_writer(self) -> LetterWriter | None:
        """Where changes are put that no observer is given any more."""
        if self.dead_letters is None:
            return None
        assert self.origin is not None, "letters of several fleets may lie in one place"
        return LetterWriter(
            letters=self.dead_letters, origin=self.origin, told=self.events.dead_letter
        )

    @property
    def _is_manual(self) -> bool:
        return self.settings.checkpoint == "manual"

    def keys_of(self, range_id: RangeId, largest: int) -> KeyScheduler:
        """Make the scheduler of a range, of batches of so many changes at the most."""
        settings = self.settings
        attempts = None if settings.on_failure == "retry" else settings.retry.attempts
        delays = GrowingDelays(settings.retry, self.random)
        return KeyScheduler(
            Judge(range_id, attempts, delays, self.successes),
            random=self.random,
            observers=settings.concurrency,
            sticky=self._is_manual and settings.concurrency > 1,
            by_key=settings.ordering == "key",
            largest=largest,
        )

    def observers_of(
        self, context: RangeContext, keys: KeyScheduler, moved: LightEvent
    ) -> RangeObservers:
        """Return the observers of a range; they are made when they are opened."""
        return RangeObservers(
            context=context,
            keys=keys,
            moved=moved,
            make=lambda: [self._runner(context) for _ in range(self.settings.concurrency)],
            manual=self._is_manual,
            attempts=self.settings.retry.attempts,
            delays=GrowingDelays(self.settings.retry, self.random),
            events=self.events,
            letter_writer=self.letter_writer,
        )

    def _runner(self, context: RangeContext) -> Runner:
        called = CalledObserver(self.make(), check=context.check, seconds=self.settings.timeout)
        return Runner(called, ObserverContext(context))
