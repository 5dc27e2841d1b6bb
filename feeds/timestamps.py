"""Times as feeds keep them: whole microseconds since 1970, UTC."""

from datetime import UTC, datetime, timedelta

from changefeed.feeds.errors import FeedRefused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def instant_us(time: datetime) -> int:
    """Return a time as microseconds since 1970, exactly; refuse one without a zone."""
    if time.tzinfo is None:
        raise FeedRefused(
            f"{time.isoformat()} has no time zone: write {time.isoformat()}+00:00 for UTC"
        )
    return (time - _EPOCH) // _MICROSECOND
