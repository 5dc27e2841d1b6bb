"""Expiry without clocks: who has shown no sign of life for too long, as seen from here.

Clocks of different machines disagree, so the only clock asked is our own monotonic one.
A lease (or a member) is expired once *we* have seen the same sign of life for the whole
expiration. A listing shows the state at some moment between question and answer, so the
span counted runs from the *answer* that first showed the sign to the *question* that
showed it last: a listing that was long under way can never make a living owner look dead.

What the mechanism costs: a watcher that has just started must wait a whole expiration
for owners that died long ago. Wall-clock stamps shorten that, and only that: what has
stood still for longer than the expiration and any error of clocks is expired at once.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Living(Protocol):
    """What can die: a lease with its owner, a member."""

    @property
    def sign_of_life(self) -> Hashable: ...

    @property
    def stamp(self) -> float | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When a listing was asked for and answered (monotonic), and the wall-clock time."""

    asked: float
    answered: float
    wall: float


class ExpiryWatch(Generic[K]):
    """Remembers the signs of life of one kind of thing. Times are in seconds."""

    def __init__(self, *, expiration: float, max_clock_skew: float) -> None:
        self._expiration = expiration
        self._longest_still = expiration + max_clock_skew
        self._seen: dict[K, tuple[Hashable, float]] = {}
        self._expired: set[K] = set()

    def expired(self, listed: Mapping[K, Living], at: Moment) -> set[K]:
        """Take in a listing, and return the keys of what is dead."""
        seen: dict[K, tuple[Hashable, float]] = {}
        for key, thing in listed.items():
            sign, since = self._seen.get(key, (None, at.answered))
            if sign != thing.sign_of_life:
                sign, since = thing.sign_of_life, at.answered
            seen[key] = (sign, since)
        self._seen = seen
        self._expired = {
            key
            for key, thing in listed.items()
            if at.asked - seen[key][1] >= self._expiration
            or (thing.stamp is not None and at.wall - thing.stamp >= self._longest_still)
        }
        return self._expired

    def next_expiry(self) -> float | None:
        """Return when, on our clock, the next thing would expire if nothing moved."""
        standing = (since for key, (_, since) in self._seen.items() if key not in self._expired)
        first = min(standing, default=None)
        return None if first is None else first + self._expiration
