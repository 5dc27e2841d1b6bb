"""The files of an event log: their names, their tables, and the version of both.

Frozen. The catalog says which log this is and which partitions it has had, in the order in
which they were opened, so parents come before children; what goes on with a closed partition
are those that name it as a parent. Each broker has a folder of its own with the records of
the partitions it keeps.
"""

import sqlite3
from collections.abc import Iterable

from changefeed.feeds.eventlog.block_writer import Tail

FORMAT = 5
"""The only format that is read and written. Lower numbers were never released."""

CATALOG = "catalog.db"
RECORDS = "records.db"
LOCK = "writer.lock"

CATALOG_TABLES = """
CREATE TABLE log (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL,  -- 32 hexadecimal digits, new for each log
    format INTEGER NOT NULL,
    parts INTEGER NOT NULL,
    created_us INTEGER NOT NULL
);
CREATE TABLE eras (era INTEGER PRIMARY KEY, began_us INTEGER NOT NULL);
CREATE TABLE brokers (
    broker INTEGER PRIMARY KEY,
    folder TEXT NOT NULL UNIQUE  -- relative to the log
);
CREATE TABLE partitions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    era INTEGER NOT NULL REFERENCES eras,
    part INTEGER NOT NULL,
    low INTEGER NOT NULL,  -- its virtual parts, both ends included
    high INTEGER NOT NULL,
    broker INTEGER NOT NULL REFERENCES brokers,  -- who keeps its records
    closed INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE parents (
    child INTEGER NOT NULL REFERENCES partitions,
    parent INTEGER NOT NULL REFERENCES partitions,
    PRIMARY KEY (child, parent)
) WITHOUT ROWID;
"""

RECORDS_TABLES = """
CREATE TABLE log (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    identity TEXT NOT NULL,  -- as in the catalog
    format INTEGER NOT NULL,
    broker INTEGER NOT NULL
);
CREATE TABLE partitions (  -- the end of each: see block_writer.Tail
    partition INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    latest_us INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    first INTEGER NOT NULL,
    size INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    checks BLOB NOT NULL  -- checksums of the last block, and of this row but for closed
);
CREATE TABLE blocks (
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,      -- the sequence of its first record
    last INTEGER NOT NULL,
    latest_us INTEGER NOT NULL,  -- the latest commit time in the partition up to its end
    stored INTEGER NOT NULL,     -- the bytes of the partition's blocks up to its end
    kinds BLOB NOT NULL,         -- this and all that follows: see block_format
    times BLOB NOT NULL,
    key_sizes BLOB NOT NULL,
    keys BLOB NOT NULL,
    id_sizes BLOB NOT NULL,
    ids BLOB NOT NULL,
    body_sizes BLOB NOT NULL,
    bodies BLOB NOT NULL,
    previous_sizes BLOB NOT NULL,
    previous BLOB NOT NULL,
    checks BLOB NOT NULL,        -- checksums of the columns, and of this row
    PRIMARY KEY (partition, first)
);
CREATE INDEX blocks_by_time ON blocks (partition, latest_us);
CREATE TABLE segments (  -- what was in blocks, and is in a file: see segment_rows
    partition INTEGER NOT NULL,
    first INTEGER NOT NULL,      -- these, and stored, are as those of blocks
    last INTEGER NOT NULL,
    latest_us INTEGER NOT NULL,
    stored INTEGER NOT NULL,
    size INTEGER NOT NULL,       -- of the file, in bytes
    is_text INTEGER NOT NULL,    -- whether all bodies are UTF-8
    tail_crc INTEGER NOT NULL,   -- of what lies behind the row groups
    groups BLOB NOT NULL,        -- of each: last sequence, latest time, end in the file, CRC-32
    checks INTEGER NOT NULL,     -- CRC-32 of this row
    PRIMARY KEY (partition, first)
) WITHOUT ROWID;
"""

NEW_PARTITION = "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, ?, ?)"


def open_partitions(records: sqlite3.Connection, numbers: Iterable[int]) -> None:
    """Let records take changes for these partitions, within the caller's transaction."""
    tails = (Tail(partition=number) for number in numbers)
    records.executemany(
        "INSERT INTO partitions VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
        [(*x.numbers, x.sealed) for x in tails],
    )
