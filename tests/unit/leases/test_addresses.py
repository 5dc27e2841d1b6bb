"""Addresses of leases: what opens them, what is printed of them, and when two are one place."""

from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container, open_stores
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.addresses import shared_place, without_secrets
from tests.support import make

DATABASE = "postgresql://h/db"


@pytest.mark.real_time
async def test_two_stores_make_one_container(tmp_path: Path) -> None:
    ownership = f"sqlite:{tmp_path / 'ownership.db'}"
    checkpoints = f"sqlite:{tmp_path / 'checkpoints.db'}"
    async with open_stores(ownership, checkpoints) as leases:
        lease = await leases.create(make.lease(at="c0"))
        assert await leases.read(lease.range_id) == lease
    async with open_container(checkpoints) as other:
        assert list(await other.list()) == []  # ownership went to the other file


async def test_leases_in_memory_are_those_of_one_process(tmp_path: Path) -> None:
    async with open_container("memory:") as one, open_container("memory:") as other:
        await one.create(make.lease(at="c0"))
        assert list(await other.list()) == []  # each reads the whole feed
    apart = (f"sqlite:{tmp_path / 'checkpoints.db'}", "memory:")
    for first, second in (apart, apart[::-1]):
        with pytest.raises(StoreRefused, match="both in memory or neither"):
            async with open_stores(first, second):
                pass
    for looking in (OpenOptions(must_exist=True), OpenOptions(only_look=True)):
        with pytest.raises(StoreRefused, match="its process alone"):
            async with open_container("memory:", looking):
                pass


@pytest.mark.parametrize("address", ["nats://host", "leases.db", "sqlite:", ""])
async def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    with pytest.raises(StoreRefused):
        open_container(address)
    with pytest.raises(StoreRefused):
        async with open_stores(address, address):
            pass


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://u:s:e@cret@h/db?fleet=f", "postgresql://u:…@h/db?fleet=f"),
        ("redis://:p@h:1/0 with blob://a/c", "redis://:…@h:1/0 with blob://a/c"),
        ("postgresql://h/db?password=p&fleet=f", "postgresql://h/db?password=…&fleet=f"),
        ("sqlite:data/leases.db", "sqlite:data/leases.db"),
    ],
)
def test_a_printed_address_has_no_password(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://u:s:e@cret@h:5432/db?fleet=f", "postgresql://h:5432/db?fleet=f"),
        (
            "postgresql://h/db?sslmode=verify-full&schema=s&fleet=f",
            f"{DATABASE}?fleet=f&schema=s",
        ),
        ("postgresql:///db?host=/run/a&user=u&password=p", "postgresql:///db?host=%2Frun%2Fa"),
        ("redis://:p@h:1/0?fleet=f&ssl_ca_certs=ca.pem", "redis://h:1/0?fleet=f"),
        ("redis://h:1/0", "redis://h:1/0"),
        ("cosmos://h/d/c?prefix=p%2B&mode=all-versions", "cosmos://h/d/c?prefix=p%2B"),
        ("cosmos:///d/c?processor=p&feed=d/f", "cosmos:///d/c?feed=d%2Ff&processor=p"),
        ("blob://account/container/prefix", "blob://account/container/prefix"),
        ("sqlite:/data/leases.db?password=x", "sqlite:/data/leases.db?password=…"),
    ],
)
def test_a_place_has_no_user_and_no_option_that_does_not_say_where(
    address: str, place: str
) -> None:
    assert shared_place(address) == place
