"""What it costs that the position stands in the transaction of the rows.

Two observers write the same rows in a SQLite file, a transaction for each batch: one by itself,
whose position is the checkpoint of its lease alone, and one by ``in_sqlite``. Twelve ranges.
Rounds take turns; the ratio is the median of those of each round.
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from changefeed.feeds.feed import Change
from changefeed.log.directory.feed import EventLog
from changefeed.transactional.sqlite import in_sqlite
from tests.support.sqlite_leases import SqliteLeases

from .logs import make_log
from .one_host import Until, seconds_of_host
from .result import Result, by_rounds

_ROUNDS, _CHANGES = 4, 60_000


class Writing(Until):
    """Tells the end of what another observer writes."""

    def __init__(self, observer: Callable[[Callable[..., None]], Any]) -> None:
        super().__init__(_CHANGES)
        loop, count = asyncio.get_running_loop(), super().process

        def write(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
            rows = [(x.range_id, x.sequence, x.body) for x in changes]
            connection.executemany("insert into applied values (?, ?, ?)", rows)
            asyncio.run_coroutine_threadsafe(count(changes), loop)

        self.process = observer(write)  # type: ignore[method-assign]


def measure() -> Sequence[Result]:
    rounds = asyncio.run(_measured())
    return [
        by_rounds("transactional", rounds, "rows", "changes/s"),
        by_rounds("transactional", rounds, "rows_and_position", "changes/s", against="rows"),
    ]


async def _measured() -> Sequence[Mapping[str, float]]:
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        log = Path(place) / "log"
        await make_log(log, parts=12, changes=_CHANGES)
        async with EventLog.open(log) as feed:
            found = [
                {
                    "rows": await _rate(log, feed, _by_itself),
                    "rows_and_position": await _rate(log, feed, _with_position),
                }
                for _ in range(_ROUNDS + 1)
            ]
    return found[1:]  # after one to warm up


async def _rate(log: Path, feed: EventLog, made: Callable[[Path], Any]) -> float:
    with tempfile.TemporaryDirectory(dir=log.parent) as place:
        file = Path(place) / "rows.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("pragma journal_mode = wal")
            connection.execute("create table applied (range text, sequence int, body blob)")
        async with SqliteLeases(Path(place) / "leases.db") as leases:
            return _CHANGES / await seconds_of_host(feed, leases, {}, Writing(made(file)))


def _with_position(file: Path) -> Any:
    return in_sqlite(file, name="bench")


def _by_itself(file: Path) -> Callable[[Callable[..., None]], Any]:
    def decorate(write: Callable[..., None]) -> Any:
        class Rows:
            """As ``in_sqlite``, but for the position."""

            def open(self, _: object) -> None:
                self._connection = sqlite3.connect(file, timeout=5, isolation_level=None)

            def process(self, changes: Sequence[Change]) -> None:
                self._connection.execute("begin immediate")
                write(self._connection, changes)
                self._connection.execute("commit")

            def close(self, *_: object) -> None:
                self._connection.close()

        return Rows

    return decorate
