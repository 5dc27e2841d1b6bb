"""What is said of feeds."""

import sqlite3
from pathlib import Path
from typing import Final

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.cosmos.address import read_address
from changefeed.feeds.eventlog.database import advised
from changefeed.feeds.feed import RangeId
from changefeed.feeds.producing import log_directory

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


def _fails(code: int) -> None:
    error = sqlite3.OperationalError("disk trouble")
    error.sqlite_errorcode = code
    with advised(Path("/"), RangeId("r")):
        raise error


FEEDS.each(
    _fails,
    {
        "an event log on a disk that fails": sqlite3.SQLITE_IOERR,
        "an event log on a full disk": sqlite3.SQLITE_FULL,
        "an event log that another process holds": sqlite3.SQLITE_BUSY,
        "an event log without the right to write": sqlite3.SQLITE_READONLY_DIRECTORY,
        "an event log that is no database": sqlite3.SQLITE_NOTADB,
        "an event log of other tables": sqlite3.SQLITE_ERROR,
        "an event log with a damaged page": sqlite3.SQLITE_CORRUPT_INDEX,
    },
)
