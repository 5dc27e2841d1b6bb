"""What brokers do in the background, done at once for an event log in a directory."""

import time
from pathlib import Path

from changefeed.brokers.compactor import Compacted, Compactor
from changefeed.brokers.core_settings import CoreSettings
from changefeed.brokers.members import Sign
from changefeed.brokers.retention import Retention
from changefeed.feeds.brokers.row_readers import row_readers
from changefeed.feeds.brokers.work import in_thread
from changefeed.feeds.eventlog.directory import WRITER, open_directory
from changefeed.feeds.eventlog.writer import EventLogWriter
from changefeed.runtime.clock import elapsed_time

_SETTINGS = CoreSettings(cache_bytes=64 * 1024 * 1024, delete_grace=0)
"""Without a grace: a reader that finds something gone looks for it in runs."""


async def compact_log(home: Path) -> Compacted:
    """Make runs of all records that are in frames, and delete these. Return what was done.

    Raise ``FeedUnavailable`` while another process writes the log.
    """
    async with EventLogWriter.open(home) as writer:
        return await compact(home, writer)


async def compact(home: Path, writer: EventLogWriter) -> Compacted:
    """See ``compact_log``: of a log that is written here."""
    await writer.fill_up()
    store, catalogs = await open_directory(home)
    era = catalogs.newest.era
    assert era is not None, "a log is made with an era"
    assert [x.broker for x in era.rows] == [WRITER], (
        f"it is written here, and not by {era.rows}"
    )
    readers = row_readers(store, catalogs.newest.identity, _SETTINGS.cache_bytes)
    compactor = Compactor(
        Sign(name=WRITER, incarnation=era.rows[0].incarnation, beat=0),
        catalogs,
        readers,
        store,
        settings=_SETTINGS,
        wall_us=_wall_us,
        work=in_thread,
    )
    retention = Retention(
        catalogs,
        readers,
        store,
        _SETTINGS,
        name=WRITER,
        clock=elapsed_time,
        wall_us=_wall_us,
    )
    for row in era.rows:
        await readers.row(catalogs.newest, era.number, row.broker).tail()
    await compactor.step(everything=True)
    for _ in range(2):  # it says what is gone, and deletes what it has said
        await retention.step()
    return compactor.done


def _wall_us() -> int:
    return time.time_ns() // 1000
