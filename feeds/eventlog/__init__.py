"""The event log: a feed in a directory, durable, partitioned, and of one machine.

    catalog.db             which log this is, its parts, eras, brokers and partitions
    brokers/1/records.db   the changes of the partitions that broker 1 writes
    brokers/1/writer.lock  held by the one process that writes there
    segments/RANGE/        changes of a range that were sealed: files of Parquet

A collection has a fixed number of *parts*, 12 by default, and 256 *virtual
parts* in each. The hash of a key gives both. A *partition* is a part with an interval of
virtual parts, and is one range of the feed: ``e1.p03.v00-ff`` is the whole of part 3 in
the first era. Its changes are numbered from 1 without a gap.

One process writes, any number read, on one machine: the lock and SQLite's write-ahead log
both need a local file system. What was acknowledged survives a killed process and, unless
the writer is set otherwise, a loss of power. Nothing is deleted yet: a log grows with
what is appended. There is one broker yet, and nothing here begins an era of its own
accord; the files have room for both. ``docs/design/event-log.md`` gives the reasons.
"""

from changefeed.feeds.eventlog.create import DEFAULT_PARTS, create_log
from changefeed.feeds.eventlog.log import EventLog
from changefeed.feeds.eventlog.records import Record
from changefeed.feeds.eventlog.sealer import Sealed
from changefeed.feeds.eventlog.sealing import BACKGROUND, SealPolicy
from changefeed.feeds.eventlog.writer import Appended, EventLogWriter

__all__ = [
    "BACKGROUND",
    "DEFAULT_PARTS",
    "Appended",
    "EventLog",
    "EventLogWriter",
    "Record",
    "SealPolicy",
    "Sealed",
    "create_log",
]
