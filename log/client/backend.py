"""Brokers among the feeds: ``brokers://HOST:PORT,HOST:PORT/COLLECTION``."""

from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import FeedBackend, OpenOptions
from changefeed.feeds.feed import Feed
from changefeed.log.client.access import BrokerAccess, BrokersSettings
from changefeed.log.client.address import FORM, parse_address
from changefeed.log.client.feed import BrokersFeed
from changefeed.runtime.backends import Address


def _open(address: Address, options: OpenOptions) -> AbstractAsyncContextManager[Feed]:
    given = options.settings
    settings = given if isinstance(given, BrokersSettings) else BrokersSettings()
    where = parse_address(address.scheme, address.place)
    return BrokersFeed.open(where, BrokerAccess.of(settings))


BACKEND = FeedBackend(
    name="brokers",
    place=FORM,
    open=_open,
    settings=BrokersSettings,
    modes=("all-versions",),
)
