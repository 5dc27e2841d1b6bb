"""What is said of feeds."""

from typing import Final

from changefeed.feeds.addresses import open_feed

from .table import Table

FEEDS: Final = Table("Feeds and the event log")

FEEDS.each(
    open_feed,
    {
        "a feed in the memory of one process": "memory:",
        "an event log without a directory": "eventlog:",
        "an address with a scheme of no feed": "kafka:orders",
        "no address": "",
    },
)
