"""From format 2 to 3: checksums. The writer does it when it opens a log. And to 4: segments.

Blocks that are there stay as they are, without checksums, but for the last one of each
partition, which may grow. The records are changed first, in one transaction, and then the
catalog: a process that dies in between leaves a log that readers read and the next writer
upgrades. Readers of versions that know format 2 only refuse the log from then on.

Format 4 begins with the first segment, not before, so that a log without any is one that
earlier versions read. There the catalog is changed first: what knows format 3 only refuses
the log before a block is missing in it.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

from changefeed.feeds.eventlog.block_format import COLUMNS, Layout
from changefeed.feeds.eventlog.catalog import Catalog, check_records
from changefeed.feeds.eventlog.checksums import NONE, extend, seal
from changefeed.feeds.eventlog.database import opened, typed
from changefeed.feeds.eventlog.schema import (
    CATALOG,
    CHECKED,
    FORMAT,
    RECORDS,
    SEGMENTED,
    SEGMENTS_TABLE,
    UNCHECKED_TABLE,
)

_LAST_BLOCK = f"""
SELECT first, last, latest_us, stored, {COLUMNS} FROM blocks WHERE partition = ? AND first = ?
"""  # noqa: S608 - names of our own columns
_OF_LAST_BLOCK: Any = tuple[(*[int] * 4, *[bytes] * len(Layout._fields))]  # type: ignore[misc]
_TAILS = "SELECT partition, last, latest_us, stored, first, size FROM partitions"


def upgrade(catalog: Catalog, broker: int) -> None:
    """Bring the records of a broker, and then the catalog, to this version's format.

    Blocks; the caller holds the writer's lock. Raise ``FeedRefused`` for records of
    another log.
    """
    with opened(catalog.folder(broker) / RECORDS, "rw") as records:
        if not check_records(records, catalog, broker).has_checksums:
            records.execute("BEGIN IMMEDIATE")
            _add_checksums(records)
            records.execute("UPDATE log SET format = ?", (FORMAT,))
            records.execute("COMMIT")
    if catalog.format not in CHECKED:
        with opened(catalog.home / CATALOG, "rw") as connection:
            connection.execute("UPDATE log SET format = ?", (FORMAT,))


def make_room_for_segments(
    catalog: Catalog, broker: int, reached: Callable[[str], None]
) -> None:
    """Bring a log to the format that has segments. Blocks; the caller holds the lock."""
    with opened(catalog.home / CATALOG, "rw") as connection:
        connection.execute("UPDATE log SET format = ?", (SEGMENTED,))
    reached("the catalog says so")
    with opened(catalog.folder(broker) / RECORDS, "rw") as records:
        # The writer alone copies the write-ahead log into the file: see the known limits.
        records.execute("PRAGMA wal_autocheckpoint = 0")
        if check_records(records, catalog, broker).format != SEGMENTED:
            records.execute("BEGIN IMMEDIATE")
            records.execute(SEGMENTS_TABLE)
            reached("there is a table")
            records.execute("UPDATE log SET format = ?", (SEGMENTED,))
            records.execute("COMMIT")


def _add_checksums(records: sqlite3.Connection) -> None:
    records.execute("ALTER TABLE blocks ADD COLUMN checks BLOB")
    records.execute("ALTER TABLE partitions ADD COLUMN checks BLOB")
    records.execute(UNCHECKED_TABLE)
    records.execute("INSERT INTO unchecked SELECT partition, first - 1 FROM partitions")
    for partition, *tail in typed(records.execute(_TAILS), tuple[int, int, int, int, int, int]):
        checks = NONE
        block = records.execute(_LAST_BLOCK, (partition, tail[3]))
        for first, last, latest_us, stored, *columns in typed(block, _OF_LAST_BLOCK):
            checks = extend(NONE, columns)
            sealed = seal(checks, partition, first, last, latest_us, stored)
            records.execute(
                "UPDATE blocks SET checks = ? WHERE partition = ? AND first = ?",
                (sealed, partition, first),
            )
        records.execute(
            "UPDATE partitions SET checks = ? WHERE partition = ?",
            (seal(checks, partition, *tail), partition),
        )
