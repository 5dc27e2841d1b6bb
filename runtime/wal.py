"""Puts a SQLite file in WAL mode, whoever else opens it at the same moment."""

import sqlite3

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random

from changefeed.runtime.file_errors import why_it_may_pass


def change_to_wal(connection: sqlite3.Connection, *, within: float) -> bool:
    """Return whether the file is in WAL mode now; on some network disks none is possible.

    Raise SQLite's error if what may pass has not passed within that many seconds, such as
    another connection's change: SQLite's own timeout does not hold for this one.
    """
    retrying = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop_after_delay(within),
        wait=wait_random(0.005, 0.05),
        reraise=True,
    )
    (mode,) = retrying(lambda: connection.execute("pragma journal_mode = wal").fetchone())
    return bool(mode == "wal")


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, sqlite3.Error) and why_it_may_pass(error) is not None
