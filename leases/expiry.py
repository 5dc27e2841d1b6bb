"""Expiry without clocks: who has shown no sign of life for too long, as seen from here.

Clocks of different machines disagree, so the only clock asked is our own, one that counts
suspended time too (``changefeed.runtime.clock``).
A lease (or a member) is expired once *we* have seen the same sign of life for the whole
expiration. A listing shows the state at some moment between question and answer, so the
span counted runs from the *answer* that first showed the sign to the *question* that
showed it last: a listing that was long under way can never make a living owner look dead.

What the mechanism costs: a watcher that has just started must wait a whole expiration
for owners that died long ago. Wall-clock stamps shorten that, and only that: what is older
by its stamp than the expiration and any error of clocks is expired once *we* have seen it
unchanged for two renewals. So a wrong clock, ours or the writer's, takes nothing from an
owner that is alive.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class HasSignOfLife(Protocol):
    """What can die: a lease with its owner, a member."""

    @property
    def sign_of_life(self) -> Hashable: ...

    @property
    def stamp(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAt:
    """When a listing was asked for and answered (on our clock), and the wall-clock time."""

    asked: float
    answered: float
    wall: float

    def __post_init__(self) -> None:
        assert self.asked <= self.answered, f"answered before it was asked: {self}"


class ExpiryWatch(Generic[K]):
    """Remembers the signs of life of one kind of thing. Times are in seconds.

    ``renew_interval`` is how long a living owner may take from one sign of life to the next.
    """

    def __init__(
        self, *, expiration: float, max_clock_skew: float, renew_interval: float
    ) -> None:
        self._max_clock_skew = max_clock_skew
        self.judge_by(expiration, renew_interval=renew_interval)
        self._seen: dict[K, tuple[Hashable, float]] = {}
        self._old: set[K] = set()  # by their stamps
        self._expired: set[K] = set()

    def judge_by(self, expiration: float, *, renew_interval: float) -> None:
        """Change the expiration. What has stood still has done so all the while."""
        self.expiration = expiration
        self._longest_still = expiration + self._max_clock_skew
        self._shortest_watch = min(expiration, 2 * renew_interval)
        assert 0 < self._shortest_watch <= expiration <= self._longest_still, (
            f"a stamp may only shorten the wait, and never to nothing: {expiration=}, "
            f"{self._max_clock_skew=}, {renew_interval=}"
        )

    def expired(self, listed: Mapping[K, HasSignOfLife], at: ListedAt) -> set[K]:
        """Take in a listing, and return the keys of what is dead."""
        seen: dict[K, tuple[Hashable, float]] = {}
        for key, thing in listed.items():
            sign, since = self._seen.get(key, (None, at.answered))
            if sign != thing.sign_of_life:
                sign, since = thing.sign_of_life, at.answered
            assert since <= at.answered, f"{key!r} was seen at {since}, after {at}"
            seen[key] = (sign, since)
        self._seen = seen
        self._old = {key for key, thing in listed.items() if self._is_old(thing, at)}
        self._expired = {
            key for key, (_, since) in seen.items() if at.asked - since >= self._wait_for(key)
        }
        assert self._expired <= listed.keys(), "what was not listed cannot be judged"
        return self._expired

    def _is_old(self, thing: HasSignOfLife, at: ListedAt) -> bool:
        return thing.stamp is not None and at.wall - thing.stamp >= self._longest_still

    def _wait_for(self, key: K) -> float:
        return self._shortest_watch if key in self._old else self.expiration

    def next_expiry(self) -> float | None:
        """Return when, on our clock, the next thing would expire if nothing moved."""
        moments = (
            since + self._wait_for(key)
            for key, (_, since) in self._seen.items()
            if key not in self._expired
        )
        return min(moments, default=None)
