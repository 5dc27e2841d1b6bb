"""The wrappers around the user's observer, on hosts and in tasks of Spark."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Protocol

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.observers.call import CalledObserver, Fence, ObserverMaker
from changefeed.observers.dead_letters import DeadLetters, Origin
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.middleware.aside import Aside
from changefeed.observers.middleware.concurrency import KeyedConcurrency
from changefeed.observers.middleware.poison import PoisonIsolation, PoisonSuspicion
from changefeed.observers.middleware.readable import ReadableOnly
from changefeed.observers.middleware.retry import Retrying, RetrySettings
from changefeed.observers.observer import Observer, ObserverFactory

_PROBING_ATTEMPTS = 2  # of a part of a batch that has failed, when a change is looked for


class MiddlewareSettings(Protocol):
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


def wrap(
    make: ObserverFactory,
    settings: MiddlewareSettings,
    events: FailureLog,
    random: Random,
    *,
    dead_letters: DeadLetters | None = None,
    origin: Origin | None = None,
    suspicions: Mapping[RangeId, PoisonSuspicion] | None = None,
) -> ObserverMaker:
    """Put around each observer what the settings ask for, the innermost first.

    Without ``dead_letters`` nothing is put aside; with them, ``origin`` distinguishes these
    letters from those of others in the same place. ``suspicions`` has one for each range asked
    for; give it where what is returned does not live as long as the process.
    """
    known = (
        defaultdict[RangeId, PoisonSuspicion](PoisonSuspicion)
        if suspicions is None
        else suspicions
    )
    return _Stack(
        make=make,
        settings=settings,
        events=events,
        random=random,
        dead_letters=dead_letters,
        origin=origin,
        suspicions=known,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stack:
    """Makes the observer of one range, wrapped."""

    make: ObserverFactory
    settings: MiddlewareSettings
    events: FailureLog
    random: Random
    dead_letters: DeadLetters | None
    origin: Origin | None
    suspicions: Mapping[RangeId, PoisonSuspicion]

    def __call__(self, feed_range: FeedRange, gate: Fence) -> Observer:
        one_partition = partial(self._one_partition, feed_range, gate)
        if self.settings.concurrency == 1:
            return one_partition()
        return KeyedConcurrency(
            one_partition, self.settings.concurrency, manual=self._is_manual
        )

    @property
    def _is_manual(self) -> bool:
        return self.settings.checkpoint == "manual"

    def _one_partition(self, feed_range: FeedRange, gate: Fence) -> Observer:
        called = CalledObserver(self.make(), fence=gate, seconds=self.settings.timeout)
        wrap_in_retries = partial(
            Retrying,
            called,
            random=self.random,
            on_retry=partial(self.events.observer_retrying, feed_range.id),
            sleep=gate.sleep,
        )
        observer: Observer = wrap_in_retries(self.settings.retry)
        aside = self._aside()
        if aside is not None:
            observer = PoisonIsolation(
                observer,
                wrap_in_retries(replace(self.settings.retry, attempts=_PROBING_ATTEMPTS)),
                aside,
                suspicion=self.suspicions[feed_range.id],
                acknowledges=not self._is_manual,
            )
        return ReadableOnly(observer, aside, gate, acknowledges=not self._is_manual)

    def _aside(self) -> Aside | None:
        if self.dead_letters is None:
            return None
        assert self.origin is not None, "letters of several fleets may lie in one place"
        report = self.events.dead_letter
        return Aside(self.dead_letters, self.origin, on_dead_letter=report)
