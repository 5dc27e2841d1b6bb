"""The contracts as one test each, for feeds and leases of others; and that they bite."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from changefeed import Lease, LeaseContainer, MemoryFeed, MemoryLeases, RangeId, Record
from changefeed.testing import (
    Connect,
    FeedAbility,
    FeedHarness,
    feed_contract,
    lease_container_contract,
)
from changefeed.testing.contracts import Test

NEW_YEAR = 1_767_225_600.0


@asynccontextmanager
async def in_one_object(_: Path) -> AsyncIterator[Connect]:
    leases = MemoryLeases()

    async def connect() -> LeaseContainer:
        return leases

    yield connect


class InMemory:
    can = frozenset(FeedAbility)

    def __init__(self, feed: MemoryFeed) -> None:
        self.feed = feed

    async def append(self, records: Sequence[Record]) -> None:
        for x in records:
            self.feed.append(
                x.key,
                x.body,
                id=x.id,
                operation=x.operation,
                previous=x.previous,
                committed_us=x.committed_us,
            )

    async def split(self, range_id: RangeId) -> None:
        self.feed.split(range_id)

    async def merge(self, range_ids: Sequence[RangeId]) -> None:
        self.feed.merge(*range_ids)


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[FeedHarness]:
    yield InMemory(MemoryFeed(3, clock=lambda: NEW_YEAR))


test_leases_in_memory = lease_container_contract(in_one_object)
test_feed_in_memory = feed_contract(in_memory)


def cases_of(test: Test) -> list[str]:
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    return list(mark.args[1])


def test_each_case_has_the_name_that_it_has_in_our_own_tests() -> None:
    names = cases_of(test_leases_in_memory)
    assert "test_of_many_contenders_for_a_lease_one_wins" in names
    assert "test_a_writer_whose_answer_was_lost_finds_his_write[0-1]" in names
    assert len(names) > 45
    assert len(cases_of(test_feed_in_memory)) > 30


def fails(test: Test, case: str, tmp_path: Path) -> bool:
    try:
        test(case=case, tmp_path=tmp_path)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - it may end by any error
        return True
    return False


def test_a_container_that_lets_two_writers_win_does_not_pass(tmp_path: Path) -> None:
    class Careless(MemoryLeases):
        async def replace(self, lease: Lease) -> Lease:
            stored = await self.read(lease.range_id)
            return await super().replace(
                lease if stored is None else _with_version_of(stored, lease)
            )

    @asynccontextmanager
    async def careless(_: Path) -> AsyncIterator[Connect]:
        leases = Careless()

        async def connect() -> LeaseContainer:
            return leases

        yield connect

    case = "test_of_two_writers_with_the_same_copy_the_second_is_told"
    assert fails(lease_container_contract(careless), case, tmp_path)
    assert not fails(lease_container_contract(in_one_object), case, tmp_path)


def _with_version_of(stored: Lease, lease: Lease) -> Lease:
    from dataclasses import replace  # noqa: PLC0415 - beside the one use

    return replace(lease, version=stored.version)


def test_a_feed_that_loses_a_change_does_not_pass(tmp_path: Path) -> None:
    class Losing(InMemory):
        async def append(self, records: Sequence[Record]) -> None:
            await super().append(records[1:])

    @asynccontextmanager
    async def losing(_: Path) -> AsyncIterator[FeedHarness]:
        yield Losing(MemoryFeed(3, clock=lambda: NEW_YEAR))

    case = "test_every_change_is_in_one_range_and_comes_back_as_it_went_in"
    assert fails(feed_contract(losing), case, tmp_path)
    assert not fails(feed_contract(in_memory), case, tmp_path)
