"""Errors of a log and its brokers, beside those that every feed has (``feeds.errors``).

Damaged                  bytes of a log are missing, or not those that were written

FeedRefused
├── ClusterRefused       the place in the store is no cluster of ours, or is damaged
├── CollectionUnknown    the cluster has no collection of this name
└── RangeRefused
    └── PositionGone     retention has deleted what lies after the position
"""

from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered


class Damaged(Exception):
    """Bytes of a log are missing, or are not those that were written. The text says why.

    For readers it becomes ``RangeDamaged``.
    """


class ClusterRefused(FeedRefused):
    """The cluster cannot be used as it is. The text is the advice."""


class CollectionUnknown(FeedRefused):
    """There is no such collection. ``known`` are the names of those that there are."""

    def __init__(self, collection: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(collection, known)  # args as given, so that it pickles
        self.collection = collection
        self.known = known

    def __str__(self) -> str:
        there = f"it has {', '.join(self.known)}" if self.known else "it has none yet"
        return (
            f"the cluster has no collection {self.collection!r}; {there}. Create it first, "
            f"or look for a mistake in the name"
        )


class PositionGone(RangeRefused):
    """What lies after a position was deleted by retention.

    ``after`` is the position asked for and ``start`` the last sequence that is gone: the
    records ``after + 1`` to ``start`` cannot be read any more.
    """

    def __init__(self, range_id: RangeId, after: int, start: int) -> None:
        super().__init__(range_id, "")
        self.args = (range_id, after, start)  # as given, so that it pickles
        self.after = after
        self.start = start

    def __str__(self) -> str:
        return (
            f"records {self.after + 1:,} to {self.start:,} of range {self.range_id!r} were "
            f"deleted by retention and cannot be read any more. Reset this range to its "
            f"beginning to go on with what is left, and let the collection keep records for "
            f"longer than readers may be away"
        )


def position_beyond(range_id: RangeId, after: int, end: int) -> RangeRefused:
    """Return what is raised for a position behind the last record of a range."""
    return RangeRefused(
        range_id,
        f"position {after:,} lies behind the end of range {range_id!r}, which has {end:,} "
        f"records: it belongs to another log, or to an older copy of this one. Reset this "
        f"range to its beginning",
    )


def unreadable(range_id: RangeId, what: str, error: Exception) -> RangeDamaged:
    """Return what readers of a range are given for damage: of what, and why."""
    return RangeDamaged(
        range_id,
        f"{what} of range {range_id!r} cannot be read: {error}. Restore the object from a copy "
        f"of the store; the other ranges go on",
    )


@contextmanager
def answers_of_feeds() -> Iterator[None]:
    """Raise what feeds raise where a store does not answer, or has lost what all ranges need.

    A refusal may pass if that of the store may.
    """
    try:
        yield
    except StoreRefused as error:
        refused = FeedRefused(str(error))
        raise (answered(refused) if error.may_pass else refused) from error
    except StoreUnavailable as error:
        raise FeedUnavailable(str(error)) from error
    except Damaged as error:
        raise FeedRefused(f"{error}. Restore it from a copy of the store") from error
