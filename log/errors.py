"""What a log and its brokers say by the errors of every feed (``feeds.errors``).

One error is their own: ``Damaged``, for the code between a store and a reader.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered


class Damaged(Exception):
    """Bytes of a log are missing, or are not those that were written. The text says why.

    For readers it becomes ``RangeDamaged``.
    """


def no_collection(name: str, known: Sequence[str]) -> FeedRefused:
    """Return the error for a collection that does not exist; those that do are ``known``."""
    there = f"it has {', '.join(known)}" if known else "it has none yet"
    return FeedRefused(
        f"the cluster has no collection {name!r}; {there}. Create it (changefeed log create), "
        f"or look for a mistake in the name"
    )


def position_gone(range_id: RangeId, after: int, start: int) -> RangeRefused:
    """Return the error for a position: retention has deleted the records behind it, up to
    ``start``.
    """
    return RangeRefused(
        range_id,
        f"records {after + 1:,} to {start:,} of range {range_id!r} were deleted by retention "
        f"and cannot be read any more. Reset this range to its beginning to go on with what is "
        f"left, and let the collection keep records for longer than readers may be away",
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
