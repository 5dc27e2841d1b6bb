"""What happens to an event log in the wrong moment, made to happen there."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.eventlog import EventLog, EventLogWriter, Record, create_log
from changefeed.feeds.feed import FeedRange, RangeEnded, RangeId
from tests.support.proxies import proxied
from tests.support.succession import replace_partitions

pytestmark = pytest.mark.real_time

WHOLE = RangeId("e1.p00.v00-ff")


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    await create_log(tmp_path / "log", parts=1)
    return tmp_path / "log"


async def test_changes_that_come_in_before_a_range_ends_are_read_before_its_end(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        beginning = await log.start(FeedRange(id=WHOLE), "beginning")
        happened = False

        async def then_it_ends(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal happened
            rows = await call()
            if name == "execute_fetchall" and not happened:
                happened = True  # after no change was found, and before the end is asked for
                await writer.append([Record(key="k")])
                await replace_partitions(path, [WHOLE], [(0, 0, 255)])
            return rows

        connections = log._brokers._connections
        for broker, plain in connections.items():
            made = [proxied(x, then_it_ends) for x in plain.made]
            connections[broker] = replace(plain, made=made)
        nothing_yet = await log.read(FeedRange(id=WHOLE), beginning, 10)
        assert (nothing_yet.changes, nothing_yet.position) == ((), beginning)
        last = await log.read(FeedRange(id=WHOLE), beginning, 10)
        assert [x.key for x in last.changes] == ["k"]
        with pytest.raises(RangeEnded):
            await log.read(FeedRange(id=WHOLE), last.position, 10)


async def test_of_a_batch_that_fails_at_the_last_moment_nothing_is_kept(path: Path) -> None:
    async with EventLogWriter.open(path) as writer, EventLog.open(path) as log:
        store = writer._store

        async def fails_when_all_is_stored(*arguments: Any) -> None:
            await store(*arguments)
            raise FeedUnavailable("the disk is gone")

        writer._store = fails_when_all_is_stored  # type: ignore[assignment, method-assign]
        with pytest.raises(FeedUnavailable, match="the disk is gone"):
            await writer.append([Record(key="k", body=b"1")])
        writer._store = store  # type: ignore[method-assign]
        assert (
            await lag_of(
                log,
                FeedRange(id=WHOLE),
                await log.start(FeedRange(id=WHOLE), "beginning"),
            )
            == 0
        )
        again = await writer.append([Record(key="k", body=b"2")])
        assert again.sequences == {WHOLE: range(1, 2)}
