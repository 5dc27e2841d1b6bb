"""Times as feeds keep them: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import StartAt

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant_us(time: datetime) -> int:
    """Return a time as microseconds since 1970, exactly; refuse one without a zone."""
    if time.tzinfo is None:
        raise FeedRefused(
            f"{time.isoformat()} has no time zone: write {time.isoformat()}+00:00 for UTC"
        )
    return (time - _EPOCH) // _MICROSECOND


def start_us(at: StartAt) -> int | None:
    """Return the time of a start as ``instant_us`` does; ``None`` for the beginning and now.

    Refuse a snapshot: only a feed that cannot begin at its beginning has one.
    """
    if at == "snapshot":
        raise FeedRefused(
            "this feed has no snapshot to start with, and needs none: from the beginning on it "
            "has the latest version of every item, or all of them. Start from the beginning"
        )
    return None if isinstance(at, str) else instant_us(at)
