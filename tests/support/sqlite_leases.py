"""The leases in a SQLite file that a test looks into."""

from pathlib import Path
from typing import Any, Self

from changefeed.leases.stored import StoredLeases
from changefeed.stores.sqlite.file import SqliteFile
from changefeed.stores.sqlite.store import SqliteStore


class SqliteLeases(StoredLeases):
    """The leases of a file, which is opened on ``async with`` and made where there is none."""

    def __init__(self, path: Path | str, **more: Any) -> None:
        self._file = SqliteFile(path, **more)
        super().__init__(SqliteStore(self._file), where=str(path))

    async def __aenter__(self) -> Self:
        await self._file.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()
