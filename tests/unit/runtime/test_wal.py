"""The change to WAL waits for what SQLite itself does not wait for."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.runtime.wal import change_to_wal


def test_the_change_waits_for_another_connection_that_writes(tmp_path: Path) -> None:
    writes = sqlite3.connect(tmp_path / "x.db", isolation_level=None, check_same_thread=False)
    with closing(writes), closing(sqlite3.connect(tmp_path / "x.db")) as changes:
        writes.execute("begin immediate")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            change_to_wal(changes, within=0)
        committing = threading.Timer(0.1, writes.execute, ("commit",))
        committing.start()
        assert change_to_wal(changes, within=10)
        committing.join()


def test_where_no_wal_is_possible_it_says_so() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        assert not change_to_wal(connection, within=0)
