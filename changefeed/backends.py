"""What a feed or a store of your own is made of: the seams, and what describes one to commands.

``Store`` and ``Feed`` (with its values in ``changefeed``) are abstract base classes, and their
docstrings are the contract. ``store_contract`` and ``feed_contract`` of ``changefeed.testing``
hold it. A ``StoreBackend`` or ``FeedBackend`` gives one a scheme. See ``docs/backends.md``.
"""

from changefeed.feeds.backend import FeedBackend, OpenOptions, PositionTraits
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused, RangeUnknown
from changefeed.feeds.feed import Feed, RangeEnded
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable
from changefeed.stores.backend import StoreBackend
from changefeed.stores.store import MAX_BODY, WHOLE, Listed, Record, Store, written_over

_GROUPS = {
    "A store": (
        *("Store", "Record", "Listed", "WHOLE", "MAX_BODY", "written_over"),
        *("StoreUnavailable", "StoreRefused", "StoreMissing", "StoreBackend"),
    ),
    "A feed": (
        *("Feed", "RangeEnded", "FeedUnavailable", "FeedRefused", "RangeRefused"),
        *("RangeUnknown", "FeedBackend", "PositionTraits"),
    ),
    "Both": ("Address", "OpenOptions", "Diagnostic", "fine", "warning", "problem"),
}
"""What is promised, and for what purpose."""

__all__ = [
    "MAX_BODY",
    "WHOLE",
    "Address",
    "Diagnostic",
    "Feed",
    "FeedBackend",
    "FeedRefused",
    "FeedUnavailable",
    "Listed",
    "OpenOptions",
    "PositionTraits",
    "RangeEnded",
    "RangeRefused",
    "RangeUnknown",
    "Record",
    "Store",
    "StoreBackend",
    "StoreMissing",
    "StoreRefused",
    "StoreUnavailable",
    "fine",
    "problem",
    "warning",
    "written_over",
]
