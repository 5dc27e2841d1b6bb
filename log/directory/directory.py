"""An event log in a directory: a cluster without brokers, whose one row this machine writes.

    cluster.json                identity, format
    catalog                     the collection, eras, and their ranges
    wal/ERA/local/.frames/      the changes, in files that grow
    compacted/, segments/       changes that were compacted: runs, and Parquet of large ones

All of it is as a cluster of brokers has it (``log.catalog``): so a broker may take the log
over, and then writes the eras that follow.

A log is made in one piece. Its files are written aside and renamed into place: of two
processes that make the same log at once, one wins and the other gets an error, and no reader
ever sees half a log.
"""

import asyncio
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog import Row
from changefeed.log.catalog.catalog_store import CatalogStore, open_cluster
from changefeed.log.catalog.names import CATALOG, CLUSTER
from changefeed.log.catalog.transitions import open_first_era
from changefeed.log.errors import answers_of_feeds
from changefeed.log.hashing import DEFAULT_PARTS, MAX_PARTS
from changefeed.log.stores.local_store import LocalStore
from changefeed.runtime.clock import wall_clock_us
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.private_file import PRIVATE_FOLDER

COLLECTION: Final = "log"
"""The one collection of a log that was made as one."""
WRITER: Final = "local"
"""What the process that writes is called in the catalog, in the place of a broker."""
_BEFORE: Final = "catalog.db"
_FILE: Final = "{} is a file. Give the directory of a log"
_FULL: Final = "no event log can be made at {}: it is not empty. Name a directory that is new"


async def create_log(path: str | Path, parts: int = DEFAULT_PARTS) -> None:
    """Make an empty log. The number of parts is for good; its ranges can be split.

    The directory must be new or empty. Raise ``FeedRefused`` if it is not, or cannot be
    made.
    """
    if not 1 <= parts <= MAX_PARTS:
        raise FeedRefused(f"a log has 1 to {MAX_PARTS} parts, not {parts}")
    home = Path(path)
    aside = home.parent / f".{home.name}.{secrets.token_hex(4)}.new"
    with _advised(home):
        await asyncio.to_thread(_make_folder, aside)
        try:
            await _write(LocalStore(aside), parts)
            await asyncio.to_thread(aside.rename, home)  # in the place of an empty one at most
        finally:
            await asyncio.to_thread(shutil.rmtree, aside, ignore_errors=True)


def has_nothing(home: Path) -> bool:
    """Whether a log can be made there."""
    return not home.exists() or (home.is_dir() and not any(home.iterdir()))


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=PRIVATE_FOLDER)


async def _write(store: LocalStore, parts: int) -> None:
    catalogs = CatalogStore(store, await open_cluster(store))
    await catalogs.create(COLLECTION, parts=parts)
    row = Row(broker=WRITER, incarnation=uuid4().hex)
    await catalogs.change(lambda x: open_first_era(x, [row], wall_clock_us()))


@contextmanager
def _advised(home: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, StoreUnavailable, StoreRefused) as error:
        if home.is_file():
            raise FeedRefused(_FILE.format(home)) from error
        if home.is_dir() and any(home.iterdir()):
            raise FeedRefused(_FULL.format(home)) from error
        advice = "Take a directory that this user may make"
        raise FeedRefused(f"no event log can be made at {home}: {error}. {advice}") from error


async def open_directory(home: Path) -> tuple[LocalStore, CatalogStore]:
    """Return the files of a log, and its catalog, read.

    Raise ``FeedRefused``, with advice, for what is no log or may not be read.
    """
    store = LocalStore(home)
    await asyncio.to_thread(_refuse_no_log, home)
    with answers_of_feeds():
        catalogs = CatalogStore(store, await open_cluster(store, create=False))
        await catalogs.refresh()
        await catalogs.find(COLLECTION)
    if catalogs.newest.era is None:  # a log is made with an era
        raise FeedRefused(f"{home / CATALOG} is missing: restore it from a copy of the log")
    return store, catalogs


def _refuse_no_log(home: Path) -> None:
    try:
        names = {x.name for x in home.iterdir()}
    except FileNotFoundError:
        names = set[str]()
    except NotADirectoryError as error:
        raise FeedRefused(_FILE.format(home)) from error
    except OSError as error:
        raise FeedRefused(
            f"{home} cannot be read: {error}. Give this user the right to read it"
        ) from error
    if _BEFORE in names:
        raise FeedRefused(
            f"{home} is an event log of an earlier version, in SQLite: read it with that "
            f"version, and append what it has to a new one (changefeed produce)"
        )
    if CLUSTER not in names:
        raise FeedRefused(
            f"there is no event log at {home}. Give the directory of a log, or make one with: "
            f"changefeed produce {home} FILE --key=FIELD"
        )
