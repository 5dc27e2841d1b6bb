"""The event log among the feeds: ``eventlog:DIRECTORY``."""

import os
from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import FeedBackend, OpenOptions
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed
from changefeed.log.directory.feed import EventLog
from changefeed.runtime.backends import Address
from changefeed.runtime.paths import expanded


def _open(address: Address, _: OpenOptions) -> AbstractAsyncContextManager[Feed]:
    return EventLog.open(expanded(address.place, FeedRefused))


def _absolute(place: str) -> str:
    return os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111 - text in, text out


BACKEND = FeedBackend(
    name="eventlog",
    place="DIRECTORY, as in eventlog:./orders. Make one with: changefeed produce ...",
    open=_open,
    modes=("all-versions",),
    absolute=_absolute,
)
