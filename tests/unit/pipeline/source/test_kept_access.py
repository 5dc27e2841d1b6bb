"""Feeds that stay open in a process of Spark from one use to the next."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.backend import position_traits
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Feed, FeedRange
from changefeed.pipeline.source import kept_access as module
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.feed_reader import FeedAccess
from changefeed.pipeline.source.kept_access import close_kept, kept_access
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.secret import Secret
from tests.support.shifting_feed import ShiftingReader, ShiftingStore

pytestmark = pytest.mark.real_time


class Opened:
    """Opens feeds, and keeps a list of that."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.gone = False
        """Whether what is open is of a container that was recreated."""

    def access(self, address: str, *_: object, **__: object) -> Access:
        if address.startswith("eventlog:"):
            self.did.append("open a log")
            return open_access(address)

        @asynccontextmanager
        async def feed() -> AsyncIterator[Feed]:
            self.did.append(f"open {address}")
            self.gone = False
            yield Reader(self)
            self.did.append(f"close {address}")

        return FeedAccess(feed, position_traits())


class Reader(ShiftingReader):
    def __init__(self, opened: Opened) -> None:
        super().__init__(ShiftingStore())
        self._opened = opened

    async def ranges(self) -> Sequence[FeedRange]:
        if self._opened.gone:
            raise FeedRefused("it was deleted and recreated")
        return await super().ranges()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    made = Opened()
    monkeypatch.setattr(module, "open_access", made.access)
    yield made
    close_kept()
    assert len([x for x in made.did if "open" in x and "log" not in x]) == len(
        [x for x in made.did if "close" in x]
    )


def run(address: str) -> None:
    with kept_access(address) as access:
        assert [x.id for x in access.ranges()] == ["0"]


def test_what_was_opened_by_other_credentials_is_not_lent_out(opened: Opened) -> None:
    for key in ("one", "one", "other", None):
        cosmos = None if key is None else CosmosAccess(key=Secret.of(key))
        with kept_access("a", cosmos):
            pass
    assert opened.did == ["open a", *["close a", "open a"] * 2]


def test_what_was_recreated_since_is_opened_anew_for_tasks_and_for_planners(
    opened: Opened,
) -> None:
    for feed in ("shifting", "shifting", "", "another"):
        with kept_access("a", feed=feed):
            pass
    assert opened.did == ["open a", "close a", "open a"]
    with kept_access("a") as access:
        assert isinstance(access, FeedAccess)
    opened.gone = True
    run("a")
    assert opened.did[3:] == ["close a", "open a"]


def test_two_tasks_at_once_do_not_share_access_and_one_of_theirs_is_kept(
    opened: Opened,
) -> None:
    with kept_access("a"):
        run("a")
    assert opened.did == ["open a", "open a", "close a"]
    run("a")
    assert len(opened.did) == 3


def test_what_a_task_has_failed_with_or_left_is_closed(opened: Opened) -> None:
    run("a")

    def rows() -> Iterator[int]:
        with kept_access("a"):
            yield 1
            yield 2

    left = rows()
    next(left)
    left.close()  # type: ignore[attr-defined] # it is a generator
    assert opened.did == ["open a", "close a"]
    with pytest.raises(OSError, match="full"), kept_access("a"):
        raise OSError("full")
    assert opened.did == ["open a", "close a"] * 2


def test_of_many_feeds_the_ones_read_last_stay_open(opened: Opened) -> None:
    for address in "abac":
        run(address)
    assert opened.did == ["open a", "open b", "open c", "close b"]


def test_a_fork_of_a_worker_opens_its_own(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        run("a")
        close_kept()
    assert opened.did == ["open a", "open a", "close a"]
    run("a")
    assert len(opened.did) == 3


@pytest.mark.usefixtures("opened")
def test_a_collection_is_spared_what_uses_import(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_spared(name: str) -> bool:
        with kept_access("a"):
            monkeypatch.setitem(sys.modules, name, sys)
            made = [name]
        return not any(x is made for x in gc.get_objects())

    spared = [is_spared(x) for x in ("first", "second", "second")]
    gc.unfreeze()
    assert spared == [True, True, False], "where nothing was imported, no collection is made"
