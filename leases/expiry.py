"""Expiry without clocks: who has shown no sign of life for too long, as seen from here.

Clocks of different machines disagree, so the only clock asked is our own, one that counts
suspended time too (``changefeed.runtime.clock``).
A lease (or a member) is expired once *we* have seen the same sign of life for the whole
expiration. A listing shows the state at some moment between question and answer, so the
span counted runs from the *answer* that first showed the sign to the *question* that
showed it last: a listing that was long under way can never make a living owner look dead.

What the mechanism costs: a watcher that has just started must wait a whole expiration
for owners that died long ago. Wall-clock stamps shorten that, and only that: by its stamp, less
any error of clocks, a thing may have stood still before it was first seen. ``shortest_watch``
is for how long *we* must have seen it unchanged all the same. So a wrong clock, ours or the
writer's, takes nothing from an owner that is alive.

A person who looks once cannot wait. A watch for people asks for no time of its own; nothing is
taken by what it says.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

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


class _Seen(NamedTuple):
    """A sign of life, since when it stands still as seen from here, and for how long it may
    have done so before that, by its stamp.
    """

    sign: Hashable
    since: float
    before: float


class ExpiryWatch(Generic[K]):
    """Remembers the signs of life of one kind of thing. Times are in seconds.

    ``shortest_watch`` is longer than a living owner takes from one sign of life to the next;
    without it no stamp counts.
    """

    def __init__(
        self, expiration: float, *, max_clock_skew: float = 0.0, shortest_watch: float = inf
    ) -> None:
        self._max_clock_skew = max_clock_skew
        self.judge_by(expiration, shortest_watch=shortest_watch)
        self._seen: dict[K, _Seen] = {}

    def judge_by(self, expiration: float, *, shortest_watch: float) -> None:
        """Change the expiration. What has stood still has done so all the while."""
        self.expiration = expiration
        self._longest_before = max(0.0, expiration - shortest_watch)
        assert 0 <= self._longest_before <= expiration, f"{expiration=}, {shortest_watch=}"

    def still_since(self, listed: Mapping[K, HasSignOfLife], at: ListedAt) -> dict[K, float]:
        """Take in a listing; return since when, on our clock, each thing has stood still.

        What had done so for the whole expiration when the listing was asked for is dead.
        """
        seen: dict[K, _Seen] = {}
        for key, thing in listed.items():
            known = self._seen.get(key)
            if known is None:
                stamp = at.wall if thing.stamp is None else thing.stamp
                before = max(0.0, at.wall - stamp - self._max_clock_skew)
                known = _Seen(thing.sign_of_life, at.answered, before)
            elif known.sign != thing.sign_of_life:
                known = _Seen(thing.sign_of_life, at.answered, 0.0)
            assert known.since <= at.answered, f"{key!r}: {known} is after {at}"
            seen[key] = known
        self._seen = seen
        longest = self._longest_before
        return {key: x.since - min(x.before, longest) for key, x in seen.items()}
