"""Our checkpoint stores keep the contract of ``StoredCheckpoints``."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from msgspec.structs import replace

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.lease import KeptCheckpoint, Version, WriteId
from changefeed.leases.stored import StoredCheckpoints
from changefeed.stores.addresses import open_store
from changefeed.testing.lease_cast import not_refused
from cosmos_emulator.testing import running
from tests.support.any_record import CHECKPOINTS, any_record
from tests.support.apart import MemoryCheckpoints
from tests.support.lease_containers import KEYS, fresh_address

R0, R1 = RangeId("r0"), RangeId("r1")
FIRST = KeptCheckpoint(
    range_id=R0, checkpoint=Checkpoint.of_text("0"), epoch=2, write_id=WriteId("a")
)


@asynccontextmanager
async def opened(kind: str, directory: Path) -> AsyncIterator[StoredCheckpoints]:
    async with AsyncExitStack() as stack:
        if kind == "cosmos":
            url = await stack.enter_async_context(running())
            address = f"cosmos+{url}d/checkpoints"
        else:
            address = fresh_address(kind, directory)
        keys = {x: {"key": key} for x, key in KEYS.items()}
        options = OpenOptions(create=True, backends=keys)
        store = await stack.enter_async_context(open_store(address, options))
        yield StoredCheckpoints(store)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "blob", "cosmos"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[StoredCheckpoints]:
    if request.param == "memory":
        yield MemoryCheckpoints()
        return
    async with opened(request.param, tmp_path) as store:
        yield store


def further(checkpoint: KeptCheckpoint) -> KeptCheckpoint:
    return replace(checkpoint, checkpoint=Checkpoint.of_text("1"), write_id=WriteId("b"))


async def test_the_first_to_create_a_checkpoint_decides_what_it_is(
    store: StoredCheckpoints,
) -> None:
    assert await store.read(R0) is None
    created = await store.create(FIRST)
    assert replace(created, version=Version("")) == FIRST
    assert await store.create(further(FIRST)) == created == await store.read(R0)
    assert await store.read(R1) is None


async def test_a_checkpoint_is_written_in_the_version_that_was_read(
    store: StoredCheckpoints,
) -> None:
    created = await store.create(FIRST)
    written = not_refused(await store.write(further(created)))
    assert written.position == "1"
    assert written.version != created.version
    assert await store.write(replace(created, checkpoint=Checkpoint.of_text("2"))) is None
    assert await store.read(R0) == written


async def test_a_checkpoint_of_an_epoch_that_is_over_is_refused(
    store: StoredCheckpoints,
) -> None:
    created = await store.create(FIRST)
    assert await store.write(replace(further(created), epoch=1)) is None
    assert await store.read(R0) == created


async def test_a_checkpoint_that_is_not_there_is_not_written(store: StoredCheckpoints) -> None:
    created = await store.create(FIRST)
    await store.delete(created)
    assert await store.write(further(created)) is None
    assert await store.read(R0) is None


async def test_a_checkpoint_is_deleted_in_the_version_that_was_read(
    store: StoredCheckpoints,
) -> None:
    created = await store.create(FIRST)
    written = not_refused(await store.write(replace(created, write_id=WriteId("b"))))
    await store.delete(created)  # late: what was written since stays
    assert await store.read(R0) == written
    await store.delete(written)
    assert await store.read(R0) is None
    await store.delete(written)  # twice is once
    again = await store.create(FIRST)
    for earlier in (created, written):
        await store.delete(earlier)  # a version is never used again
    assert await store.read(R0) == again


@any_record
@given(first=CHECKPOINTS, second=CHECKPOINTS)
async def test_every_field_of_a_checkpoint_comes_back(
    store: StoredCheckpoints, first: KeptCheckpoint, second: KeptCheckpoint
) -> None:
    created = await store.create(first)
    assert replace(created, version=Version("")) == first
    wanted = replace(
        second, range_id=first.range_id, epoch=first.epoch, version=created.version
    )
    await store.write(wanted)
    found = await store.read(first.range_id)
    assert found is not None
    assert replace(found, version=created.version) == wanted
    await store.delete(found)
