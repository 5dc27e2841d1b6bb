"""One of each of our errors, as an observer may raise it that calls our clients."""

from collections.abc import Sequence
from typing import Final

from changefeed.feeds.errors import (
    FeedError,
    FeedRefused,
    FeedUnavailable,
    RangeDamaged,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import FeedRange, RangeEnded, RangeId
from changefeed.leases.errors import LeaseConflict, LeaseLost
from changefeed.leases.lease import Lease
from changefeed.observers.errors import (
    AttemptFailed,
    ObserverFailed,
    ObserverStuck,
)
from changefeed.runtime.errors import (
    Failure,
    NameTaken,
    StoreError,
    StoreMissing,
    StoreRefused,
    StoreUnavailable,
    Unavailable,
    UserError,
)

_R0 = RangeId("r0")
_LEASE = Lease(range=FeedRange(id=_R0))

OUR_ERRORS: Final[Sequence[Exception]] = (
    Failure("x"),
    UserError("x"),
    FeedError("x"),
    FeedUnavailable("x"),
    FeedRefused("x"),
    RangeRefused(_R0, "x"),
    RangeDamaged(_R0, "x"),
    RangeUnknown(_R0),
    RangeEnded(_R0, ()),
    LeaseConflict(_LEASE, None),
    LeaseConflict(_LEASE, _LEASE, "x"),
    LeaseLost(_LEASE, "x"),
    StoreError("x"),
    StoreUnavailable("x"),
    Unavailable("x"),
    StoreRefused("x"),
    StoreMissing("x", made_by_run=True),
    NameTaken("x"),
    ObserverFailed(_R0, (1, 2), 3, "x"),
    ObserverStuck(_R0, "process", 15.0),
    AttemptFailed("ValueError", "x"),
)
