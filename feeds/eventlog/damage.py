"""What is said of a log whose bytes are not those that were written."""

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.eventlog.catalog import Catalog
from changefeed.feeds.eventlog.ids import position
from changefeed.feeds.feed import RangeId


def damaged(catalog: Catalog, range_id: RangeId, first: int, last: int) -> RangeDamaged:
    """Return the error for changes that are not what was written, or not there."""
    return RangeDamaged(
        range_id,
        f"changes {first} to {last} of range {range_id!r} in the event log at {catalog.home} "
        f"are damaged on the disk: none of them is delivered. Restore the directory from a "
        f"copy; or lose these changes and read on behind them, with: changefeed reset "
        f"{range_id} --to={position(catalog.identity, last)}",
    )


def damaged_end(catalog: Catalog, number: int) -> RangeDamaged:
    """Return the error for a partition of which it is not known where it ends."""
    range_id = catalog.by_number[number].id
    return RangeDamaged(
        range_id,
        f"the end of range {range_id!r} in the event log at {catalog.home} is damaged on the "
        f"disk: nothing can be appended to it. Restore the directory from a copy",
    )
