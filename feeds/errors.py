"""The feed's errors, one for each thing a reader does about it.

FeedError
├── FeedUnavailable   ask again, after ``retry_after`` seconds if it says so
├── FeedRefused       asking again cannot help: stop, and tell a person
└── RangeUnknown      the feed does not have this range: list the ranges again
"""

from changefeed.feeds.feed import RangeId


class FeedError(Exception):
    """Something the feed could not do."""


class FeedUnavailable(FeedError):
    """It did not answer, or not now. ``retry_after`` is in seconds, if the feed knows."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason, retry_after)  # args as given, so that it pickles
        self.reason = reason
        self.retry_after = retry_after

    def __str__(self) -> str:
        return self.reason


class FeedRefused(FeedError):
    """It will never answer this: made anew, unreadable, not ours. The text is the advice."""


class RangeUnknown(FeedError):
    """There is no such range, or no longer."""

    def __init__(self, range_id: RangeId) -> None:
        super().__init__(range_id)
        self.range_id = range_id

    def __str__(self) -> str:
        return f"the feed has no range {self.range_id!r}; list its ranges again"
