"""What stands around the user's observer, whoever calls it: hosts, and tasks of Spark."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Protocol

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.observers.dead_letters import DeadLetters
from changefeed.observers.failure_log import FailureLog
from changefeed.observers.middleware.concurrency import ByKey
from changefeed.observers.middleware.fence import Gate, Gated, ObserverMaker
from changefeed.observers.middleware.poison import Isolating, Suspicion
from changefeed.observers.middleware.retry import Retrying, RetrySettings
from changefeed.observers.middleware.timeout import TimeLimited
from changefeed.observers.observer import Observer, ObserverFactory

_HASTY_ATTEMPTS = 2  # of a part of a batch that has failed, when a change is looked for


class Wishes(Protocol):
    """What the settings say about it."""

    @property
    def checkpoint(self) -> str:
        """When checkpoints are written; ``manual`` leaves it to the user to say so."""
        ...

    @property
    def concurrency(self) -> int: ...

    @property
    def timeout(self) -> float | None: ...

    @property
    def retry(self) -> RetrySettings: ...


def wrapped(
    make: ObserverFactory,
    settings: Wishes,
    journal: FailureLog,
    random: Random,
    *,
    dead_letters: DeadLetters | None = None,
    suspicions: Mapping[RangeId, Suspicion] | None = None,
) -> ObserverMaker:
    """Put around each observer what the settings ask for, the innermost first.

    Without ``dead_letters`` nothing is put aside. ``suspicions`` has one for each range
    asked for; give it where what is returned does not live as long as the process.
    """
    known = defaultdict[RangeId, Suspicion](Suspicion) if suspicions is None else suspicions
    manual = settings.checkpoint == "manual"

    def make_one(feed_range: FeedRange, gate: Gate) -> Observer:
        retrying = partial(
            Retrying,
            random=random,
            on_retry=partial(journal.observer_retrying, feed_range.id),
            sleep=gate.sleep,
        )

        def one_lane() -> Observer:
            observer: Observer = Gated(make(), gate)
            if settings.timeout is not None:
                observer = TimeLimited(observer, settings.timeout)
            patient = retrying(observer, settings.retry)
            if dead_letters is None:
                return patient
            return Isolating(
                patient,
                retrying(observer, replace(settings.retry, attempts=_HASTY_ATTEMPTS)),
                dead_letters,
                suspicion=known[feed_range.id],
                acknowledges=not manual,
                on_dead_letter=journal.dead_letter,
            )

        if settings.concurrency == 1:
            return one_lane()
        return ByKey(one_lane, settings.concurrency, manual=manual)

    return make_one
