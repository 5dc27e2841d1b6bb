"""Where to begin, as people write it: a word, or a time with its zone.

A feed takes a time in the future for now, and delivers what is written before it. Nobody asks
for that, and it hides a year that was mistyped, so such a time is refused. Clocks differ: a
time may be ahead of ours by five minutes, as the clocks of hosts may be.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from changefeed.feeds.feed import StartAt

_WORDS: Final[Mapping[str, StartAt]] = {
    "beginning": "beginning",
    "now": "now",
    "snapshot": "snapshot",
}
_CLOCKS_DIFFER_BY: Final = timedelta(minutes=5)


def start_in(text: str) -> StartAt | None:
    """Read ``beginning``, ``now``, ``snapshot`` or a time; return ``None`` for any other text.

    Raise ``ValueError`` for a time without a zone, and for one in the future.
    """
    if text in _WORDS:
        return _WORDS[text]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return not_in_future(time)


def not_in_future(time: datetime) -> datetime:
    """Return ``time``. Raise ``ValueError`` if it has no zone, or is in the future."""
    if time.tzinfo is None:
        raise ValueError(
            f"the time {time.isoformat()} has no zone: write it as 2026-01-31T12:00Z or "
            f"2026-01-31T13:00+01:00"
        )
    now = datetime.now(UTC)
    if time > now + _CLOCKS_DIFFER_BY:
        raise ValueError(
            f"the time {time.isoformat()} is in the future; the clock here says "
            f"{now.isoformat(timespec='seconds')}: write a time in the past, or now"
        )
    return time
