"""The contracts as one test each, for feeds and leases of others; and that they bite."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from changefeed import Lease, LeaseContainer, MemoryLeases, Record
from changefeed.testing import (
    Connect,
    FeedHarness,
    feed_contract,
    lease_container_contract,
)
from changefeed.testing.contracts import Test
from tests.contract.test_feeds import InMemory, in_memory


@asynccontextmanager
async def in_one_object(_: Path) -> AsyncIterator[Connect]:
    leases = MemoryLeases()

    async def connect() -> LeaseContainer:
        return leases

    yield connect


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
            assert stored is not None
            return await super().replace(replace(lease, version=stored.version))

    @asynccontextmanager
    async def careless(_: Path) -> AsyncIterator[Connect]:
        leases = Careless()

        async def connect() -> LeaseContainer:
            return leases

        yield connect

    case = "test_of_two_writers_with_the_same_copy_the_second_is_told"
    assert fails(lease_container_contract(careless), case, tmp_path)
    assert not fails(lease_container_contract(in_one_object), case, tmp_path)


def test_a_feed_that_loses_a_change_does_not_pass(tmp_path: Path) -> None:
    class Losing(InMemory):
        async def append(self, records: Sequence[Record]) -> None:
            await super().append(records[1:])

    @asynccontextmanager
    async def losing(_: Path) -> AsyncIterator[FeedHarness]:
        yield Losing()

    case = "test_every_change_is_in_one_range_and_comes_back_as_it_went_in"
    assert fails(feed_contract(losing), case, tmp_path)
    assert not fails(feed_contract(in_memory), case, tmp_path)
