"""The feed's errors, one for each thing a reader does about it.

FeedError
├── FeedUnavailable   ask again, after ``retry_after`` seconds if it says so
├── FeedRefused       asking again cannot help: stop, and say so to a person
│   └── RangeRefused      ... about this range; the others can be read: stop reading this one
│       └── RangeDamaged      its changes were stored, and cannot be read any more
└── RangeUnknown      the feed does not have this range: list the ranges again
"""

from typing import TYPE_CHECKING

from changefeed.runtime.errors import Failure, Unavailable, UserError

if TYPE_CHECKING:
    from changefeed.feeds.feed import RangeId  # which needs these errors for its defaults


class FeedError(Failure):
    """Something the feed could not do."""


class FeedUnavailable(Unavailable, FeedError):
    """A feed did not answer, or not now."""


class FeedRefused(FeedError, UserError):
    """It will never answer this: recreated, unreadable, not ours. The text is the advice."""


class RangeRefused(FeedRefused):
    """One range cannot be read on from where its reader is; the others are not concerned.

    ``reason`` names the range and says what to do. Do not end a host for it: stop reading
    the range, show the reason, and go on with the rest.
    """

    def __init__(self, range_id: "RangeId", reason: str) -> None:
        super().__init__(range_id, reason)  # args as given, so that it pickles
        self.range_id = range_id
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class RangeDamaged(RangeRefused):
    """What the feed has stored of this range is not what was written."""


class RangeUnknown(FeedError):
    """There is no such range, or no longer."""

    def __init__(self, range_id: "RangeId") -> None:
        super().__init__(range_id)
        self.range_id = range_id

    def __str__(self) -> str:
        return f"the feed has no range {self.range_id!r}; list its ranges again"
