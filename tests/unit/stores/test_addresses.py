"""Addresses of leases in PostgreSQL, Redis and Azure Blob, and the names of records there."""

from collections.abc import Callable

import pytest
from redis.asyncio import ConnectionPool

from changefeed.runtime.errors import StoreRefused
from changefeed.stores.blob import address as blob
from changefeed.stores.postgres import address as postgres
from changefeed.stores.postgres.connection import connect
from changefeed.stores.postgres.store import decode, encode
from changefeed.stores.redis import address as redis
from changefeed.stores.store import short_key


@pytest.mark.parametrize(
    ("read", "given"),
    [
        (postgres.read_address, ["db"]),
        (postgres.read_address, ["//h/db?fleet="]),
        (postgres.read_address, ["//h/db?schema="]),
        (postgres.read_address, ["//u:1@g,h:65536/db"]),
        *(
            (redis.read_address, ["redis", x])
            for x in ("h", "//", "//h?fleet=", "//h?cluster=yes", "//h/db")
        ),
        (blob.read_address, ["blob", "acc/c"]),
        (blob.read_address, ["blob", "//acc"]),
        (blob.read_address, ["blob", "//"]),
        (blob.read_address, ["blob", "///"]),
        (blob.read_address, ["blob", "//acc/c//p"]),
        (blob.read_address, ["blob", "//acc/c?sig=secret"]),
        (blob.read_address, ["blob+http", "//h:1/acc"]),
        (blob.read_address, ["blob+http", "//h:1"]),
    ],
)
def test_a_wrong_address_is_refused(read: Callable[..., object], given: list[str]) -> None:
    with pytest.raises(StoreRefused):
        read(*given)


def test_a_key_is_the_text_itself_or_where_it_is_too_long_a_hash() -> None:
    assert short_key("r1", 2) == "r1"
    first, second = short_key("x" * 300, 256), short_key("x" * 301, 256)
    assert first != second
    assert len(first) == len("sha256-") + 64


# PostgreSQL


@pytest.mark.real_time
async def test_what_the_client_does_not_read_in_an_address_is_refused() -> None:
    with pytest.raises(StoreRefused, match=r"postgresql://h:five/d.*'five'"):
        async with connect(postgres.read_address("//h:five/d")):
            pass


@pytest.mark.parametrize("text", ["", "a\0b", "\\0", "\\\\0\0", "c:\\x\\", "ü"])
def test_any_text_comes_back_from_one_without_nul(text: str) -> None:
    assert "\0" not in encode(text)
    assert decode(encode(text)) == text


# Redis


def test_a_password_in_an_option_reaches_the_client_as_it_was_written() -> None:
    address = redis.read_address("redis", "//h?password=a+b%26&fleet=one+two")
    assert address.fleet == "one+two"
    assert ConnectionPool.from_url(address.url).connection_kwargs["password"] == "a+b&"


def test_fleets_whose_names_look_alike_have_keys_of_their_own() -> None:
    names = ["{f", "%7Bf", "f", "}f"]
    keys = {redis.RedisAddress(url="", fleet=x).key("leases") for x in names}
    assert len(keys) == len(names)


# Azure Blob


@pytest.mark.parametrize(
    ("scheme", "place", "wanted"),
    [
        (
            "blob",
            "//acc/c/Ns.net/Hub/$Default",
            ("https://acc.blob.core.windows.net", "c", "ns.net/hub/$default"),
        ),
        (
            "blob",
            "//acc.blob.core.usgovcloudapi.net/c",
            ("https://acc.blob.core.usgovcloudapi.net", "c", "changefeed"),
        ),
        ("blob", "///c/p", ("", "c", "p")),
        (
            "blob+http",
            "//127.0.0.1:10000/acc/c/p/q",
            ("http://127.0.0.1:10000/acc", "c", "p/q"),
        ),
    ],
)
def test_an_address_says_account_container_and_prefix(
    scheme: str, place: str, wanted: tuple[str, str, str]
) -> None:
    address = blob.read_address(scheme, place)
    assert (address.endpoint, address.container, address.prefix) == wanted
