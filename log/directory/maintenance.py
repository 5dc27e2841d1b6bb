"""What an event log needs in the background, done by the process that writes it.

It is what brokers do: runs in the place of many frames, and the deletion of what is compacted,
or not to be kept. What is compacted is due at 4,096 frames, 64 MiB, or after an hour.
"""

import asyncio
from contextlib import suppress
from typing import Final

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.core_settings import CoreSettings
from changefeed.log.directory.directory import WRITER
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import TABLE_EVERY
from changefeed.log.maintenance.compactor import Compactor
from changefeed.log.maintenance.retention import Retention
from changefeed.log.protocol.wire import Compaction
from changefeed.log.rows.row_readers import RowReaders
from changefeed.log.stores.local_store import LocalStore
from changefeed.runtime.clock import elapsed_time, wall_clock_us
from changefeed.runtime.errors import StoreError
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

NOW: Final = "now"
"""An object without bytes: when it was written says what the kernel takes for the time."""
COMPACTED_AT = 4096
"""So many frames are a run, or 64 MiB, or what is an hour old."""
_EVERY: Final = 10.0
_CACHE_BYTES: Final = 32 * 1024 * 1024


class Maintenance:
    """``by_hand``: somebody asks for it, so clocks are believed."""

    def __init__(
        self, store: LocalStore, catalogs: CatalogStore, *, by_hand: bool = False
    ) -> None:
        newest = catalogs.newest
        assert newest.era is not None, "a log is made with an era"
        settings = CoreSettings(
            compaction_objects=COMPACTED_AT,
            delete_grace=0,  # a reader that finds something gone looks for it in runs
        )
        self._failing = False
        self._store = store
        self._catalogs = catalogs
        self._readers = RowReaders(store, newest.identity, _CACHE_BYTES, ahead=TABLE_EVERY)
        self._compactor = Compactor(
            WRITER,
            newest.era.rows[0].incarnation,
            catalogs,
            self._readers,
            store,
            settings=settings,
            wall_us=wall_clock_us,
        )
        self._retention = Retention(
            catalogs,
            self._readers,
            store,
            settings,
            now_key=NOW,
            clock=elapsed_time,
            wall_us=wall_clock_us,
            trusts_clock=by_hand,
        )

    @property
    def done(self) -> Compaction:
        """What was compacted since the start."""
        return self._compactor.done

    async def run(self) -> None:
        """Do what is due every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            await self.attempt()

    async def attempt(self, *, everything: bool = False) -> None:
        """Do what is due. The log is written on, whatever becomes of it.

        What a person can mend, as a full disk, is said once until it succeeds.
        """
        what = "look after the event log"
        try:
            await self.step(everything=everything)
        except (StoreError, Damaged, FeedRefused) as error:
            if not self._failing:
                _log.warning("broker.failed", operation=what, error=str(error))
            self._failing = True
        except Exception:  # noqa: BLE001 - it is tried again
            _log.exception("broker.failed", operation=what)
        else:
            self._failing = False

    async def step(self, *, everything: bool = False) -> None:
        """Make the runs that are due, and delete what may be.

        ``everything``: all is due that lies before a frame with a table.
        """
        era = self._catalogs.newest.era
        assert era is not None, "a log has an era"
        for row in era.rows:
            with suppress(Damaged):  # what lies before it can be compacted
                await self._readers.row(self._catalogs.newest, era.number, row.broker).tail()
        await self._compactor.step(everything=everything)
        if any(x.retain_seconds is not None for x in self._catalogs.newest.collections):
            await self._store.put(NOW, b"")
        for _ in range(3):  # it says what is to be gone, and what is, and deletes that
            await self._retention.step()
