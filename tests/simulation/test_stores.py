"""A transaction of SQLite that breaks off, at each of its statements and after its commit."""

import sqlite3
from random import Random

import pytest

from changefeed.runtime.errors import StoreUnavailable
from tests.support import make

from .network import Weather
from .scout import Scout
from .sources import CosmosSource
from .sqlite_file import SqliteStores
from .stores import Surroundings

NEW = make.lease(make.feed_range("1", "", "7F"), at='"0"')


def around() -> Surroundings:
    return Surroundings(
        weather=Weather(),
        random=Random(1),
        checker=Scout(CosmosSource(Random(1), lambda: 0.0), strict=True),
        created=lambda _process, _found: None,
        is_down=lambda _: False,
        called=lambda _process, _name: None,
    )


@pytest.mark.parametrize("after_commit", [False, True])
@pytest.mark.parametrize("ends_transaction", [False, True])
@pytest.mark.parametrize("statements_left", range(8))
async def test_a_transaction_that_breaks_off_is_done_whole_or_not_at_all(
    statements_left: int, *, ends_transaction: bool, after_commit: bool
) -> None:
    stores = SqliteStores(around())
    container = stores.connect("a/1")
    broken = stores.connection("a/1")
    broken.error = sqlite3.OperationalError("disk I/O error")
    broken.error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    broken.statements_left = statements_left
    broken.ends_transaction, broken.after_commit = ends_transaction, after_commit
    try:
        await container.create(NEW)
    except StoreUnavailable:
        assert len(await stores.records.list()) == after_commit
        await container.create(NEW)  # the next transaction finds none open
    else:
        assert not after_commit
    assert len(await stores.records.list()) == 1
    stores.close()
