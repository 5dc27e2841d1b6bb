from pathlib import Path

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Lease

pytestmark = pytest.mark.real_time

NEW = Lease(range=FeedRange(id=RangeId("r0")), continuation=Continuation("c0"))


async def test_a_file_is_opened_by_its_address(tmp_path: Path) -> None:
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}") as leases:
        await leases.create(NEW)
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}") as leases:
        assert [x.range_id for x in await leases.list()] == ["r0"]


async def test_two_stores_make_one_container(tmp_path: Path) -> None:
    ownership = f"sqlite:{tmp_path / 'ownership.db'}"
    checkpoints = f"sqlite:{tmp_path / 'checkpoints.db'}"
    async with open_stores(ownership, checkpoints) as leases:
        lease = await leases.create(NEW)
        assert await leases.read(lease.range_id) == lease
    async with open_container(checkpoints) as other:
        assert list(await other.list()) == []  # ownership went to the other file


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("memory:", "seen by one process only.*use sqlite:PATH, or make MemoryLeases"),
        ("nats://host", "'nats://host' is no address of leases; there are: sqlite:"),
        ("leases.db", "'leases.db' is no address of leases"),
        ("sqlite:", "does not say where: sqlite:PATH"),
        ("", "is no address"),
    ],
)
async def test_an_address_that_cannot_be_one_is_refused_with_advice(
    address: str, advice: str
) -> None:
    with pytest.raises(ContainerRefused, match=advice):
        open_container(address)
    with pytest.raises(ContainerRefused, match=advice):
        async with open_stores(address, address):
            pass
