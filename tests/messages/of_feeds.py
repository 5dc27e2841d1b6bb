"""What is said of feeds."""

from typing import Final

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.cosmos.address import read_address
from changefeed.log.producing import log_directory

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
FEEDS.each(
    log_directory,
    {
        "a producer's address with a typo": "broker://h:7070/orders",
        "a producer's address of Cosmos DB": "cosmos://x/y/z",
        "a producer's address of leases": "sqlite:x",
    },
)
FEEDS.each(
    lambda place: read_address("cosmos", place, known={"mode"}),
    {
        "Cosmos DB without slashes": "acc/d/c",
        "Cosmos DB without a container": "//acc/d",
        "Cosmos DB with a key": "//user:c2VjcmV0@acc/d/c",
        "Cosmos DB with an option that there is not": "//acc/d/c?mod=x",
    },
)
