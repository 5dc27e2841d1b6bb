"""The contracts as one test each, for feeds and leases of others; and that they bite."""

import asyncio
import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

import changefeed
from changefeed import Feed, backends
from changefeed import Record as Produced
from changefeed.backends import WHOLE, Listed, Record, Store, written_over
from changefeed.stores.memory import MemoryStore
from changefeed.testing import FeedHarness, feed_contract, store_contract
from changefeed.testing.contracts import Test
from tests.contract.test_feeds import InMemory, in_memory
from tests.support.four_methods import FourMethods
from tests.support.lease_containers import same_object

test_store_in_memory = store_contract(same_object(MemoryStore))
test_feed_in_memory = feed_contract(in_memory)


class InFourMethods:
    can = InMemory.can

    def __init__(self) -> None:
        self._inner = InMemory()
        self.feed: Feed = FourMethods(self._inner.feed)
        self.append = self._inner.append
        self.split = self._inner.split
        self.merge = self._inner.merge


@asynccontextmanager
async def in_four_methods(_: Path) -> AsyncIterator[FeedHarness]:
    yield InFourMethods()


test_feed_of_four_methods = feed_contract(in_four_methods)


def cases_of(test: Test) -> list[str]:
    (mark,) = test.pytestmark  # type: ignore[attr-defined]
    return list(mark.args[1])


def test_each_case_has_the_name_that_it_has_in_our_own_tests() -> None:
    names = cases_of(test_store_in_memory)
    assert "test_of_many_contenders_for_a_lease_one_wins" in names
    assert "test_a_writer_whose_answer_was_lost_finds_his_write[0-1]" in names
    assert len(names) > 45
    assert len(cases_of(test_feed_in_memory)) > 30


@pytest.mark.parametrize("seam", [Feed, Store])
def test_whatever_a_contract_speaks_of_is_promised(seam: type) -> None:
    texts = [seam.__doc__, *(x.__doc__ for x in vars(seam).values())]
    named = {x for text in texts for x in re.findall(r"``([A-Z]\w+)``", text or "")}
    assert named <= {"None", *changefeed.__all__, *backends.__all__}


def fails(test: Test, case: str, tmp_path: Path) -> bool:
    try:
        test(case=case, tmp_path=tmp_path)
    except (Exception, pytest.fail.Exception):  # noqa: BLE001 - it may end by any error
        return True
    return False


class DeletesAny(MemoryStore):
    async def delete(self, kind: str, key: str, version: str) -> bool:
        del version
        return self._records.pop((kind, key), None) is not None


class ListForgets(MemoryStore):
    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        listed = await super().list(kinds, since, put)
        return replace(listed, records=listed.records[:4], total=None)


class PutsOverAny(MemoryStore):
    async def put(self, record: Record) -> Record | None:
        stored = await self.get(record.kind, record.key)
        return await super().put(replace(record, version=stored.version if stored else ""))


class PutTears(MemoryStore):
    """Writes the body first, and the position afterwards."""

    async def put(self, record: Record) -> Record | None:
        written = await super().put(replace(record, position=None))
        if written is None or record.position is None:
            return written
        await asyncio.sleep(0)
        whole = replace(written, position=record.position)
        self._records[record.kind, record.key] = whole
        return whole


class SinceMisses(MemoryStore):
    """Gives a token that is newer than what it lists."""

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        listed = await super().list(kinds, since, put)
        await asyncio.sleep(0)
        newest = max((int(x.version) for x in self._records.values()), default=0)
        return replace(listed, token=str(newest))


class VersionsComeAgain(MemoryStore):
    """Counts the writes of each record, from 1."""

    async def put(self, record: Record) -> Record | None:
        wanted = written_over(await self.get(record.kind, record.key), record)
        if wanted is None:
            return None
        written = replace(wanted, version=str(int(record.version or "0") + 1))
        self._records[record.kind, record.key] = written
        return written


class PositionsGo(MemoryStore):
    """Forgets the position where a write carries none."""

    async def put(self, record: Record) -> Record | None:
        written = await super().put(record)
        if written is None or record.position is not None:
            return written
        self._records[record.kind, record.key] = replace(written, position=None)
        return self._records[record.kind, record.key]


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (DeletesAny, "test_a_delete_in_another_version_is_refused"),
        (ListForgets, "test_a_listing_has_all_records_of_its_kinds_without_positions"),
        (PutsOverAny, "test_a_put_in_another_version_is_refused_and_changes_nothing"),
        (PutsOverAny, "test_of_many_writers_of_one_version_one_wins"),
        (PutTears, "test_body_and_position_are_of_one_write"),
        (
            SinceMisses,
            "test_a_listing_since_a_token_misses_no_write_of_others_at_that_time",
        ),
        (VersionsComeAgain, "test_a_version_is_never_used_again"),
        (PositionsGo, "test_a_put_without_a_position_leaves_the_stored_one_alone"),
    ],
)
def test_a_broken_store_does_not_pass(
    broken: type[MemoryStore], case: str, tmp_path: Path
) -> None:
    assert fails(store_contract(same_object(broken)), case, tmp_path)
    assert not fails(store_contract(same_object(MemoryStore)), case, tmp_path)


def test_a_feed_that_loses_a_change_does_not_pass(tmp_path: Path) -> None:
    class Losing(InMemory):
        async def append(self, records: Sequence[Produced]) -> None:
            await super().append(records[1:])

    @asynccontextmanager
    async def losing(_: Path) -> AsyncIterator[FeedHarness]:
        yield Losing()

    case = "test_every_change_is_in_one_range_and_comes_back_as_it_went_in"
    assert fails(feed_contract(losing), case, tmp_path)
    assert not fails(feed_contract(in_memory), case, tmp_path)
