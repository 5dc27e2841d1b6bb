"""What an acknowledgement takes that the store does not. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from statistics import quantiles
from typing import NamedTuple


class Call(NamedTuple):
    """An append: when it was asked for and when its answer was there, in seconds."""

    asked: float
    answered: float


class Put(NamedTuple):
    """A write of an object: when it began, and when it was durable, in seconds."""

    began: float
    ended: float


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that so many of a hundred do not exceed."""
    if len(values) == 1:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def beyond(calls: Sequence[Call], puts: Sequence[Put]) -> Sequence[float]:
    """Return what each call took besides the put of its object.

    Its object is the one that was durable last before its answer; a call that was answered
    before any was is refused with ``ValueError``.
    """
    ordered = sorted(puts, key=lambda x: x.ended)
    ends = [x.ended for x in ordered]
    found = []
    for call in calls:
        place = bisect_right(ends, call.answered)
        if not place:
            raise ValueError("a call was answered before anything was durable")
        put = ordered[place - 1]
        found.append(call.answered - call.asked - (put.ended - put.began))
    return found
