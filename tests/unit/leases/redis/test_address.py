from typing import Any

import pytest
from redis.asyncio import ConnectionPool

from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.redis.address import RedisAddress, read_address
from changefeed.leases.redis.connection import require_fit


def test_our_options_are_taken_out_and_the_others_left_to_the_client() -> None:
    address = read_address("rediss", "//:p@h:1/2?fleet=f&cluster=true&ssl_ca_certs=x")
    assert (address.fleet, address.cluster) == ("f", True)
    assert address.url == "rediss://:p@h:1/2?ssl_ca_certs=x"
    assert str(address) == "rediss://h:1/2 (f)"


def test_a_password_in_an_option_reaches_the_client_as_it_was_written() -> None:
    address = read_address("redis", "//h?password=a+b%26&fleet=one+two")
    assert address.fleet == "one+two"
    assert ConnectionPool.from_url(address.url).connection_kwargs["password"] == "a+b&"


@pytest.mark.parametrize(
    "place", ["h", "//", "//h?fleet=", "//h?cluster=yes"], ids=["h", "none", "fleet", "cluster"]
)
def test_a_wrong_address_is_refused(place: str) -> None:
    with pytest.raises(ContainerRefused):
        read_address("redis", place)


@pytest.mark.parametrize("fleet", ["f", "{f", "}", "a{b}c", "%7B"])
def test_all_keys_of_a_fleet_have_its_name_as_their_hash_tag(fleet: str) -> None:
    address = RedisAddress(url="redis://h", fleet=fleet)
    tags = {address.key(x).partition("{")[2].partition("}")[0] for x in ("leases", "members")}
    assert len(tags) == 1
    assert tags != {""}
    assert address.key("x") != RedisAddress(url="redis://h", fleet=fleet + "x").key("x")


def test_fleets_whose_names_look_alike_have_keys_of_their_own() -> None:
    names = ["{f", "%7Bf", "f", "}f"]
    assert len({RedisAddress(url="", fleet=x).key("leases") for x in names}) == len(names)


FIT = {"role": "master", "maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.mark.parametrize(
    ("server", "error"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, ContainerRefused),
        ({"maxmemory_policy": "allkeys-random"}, ContainerRefused),
        ({"role": "slave"}, ContainerUnavailable),
    ],
)
def test_a_server_that_may_lose_leases_is_refused(
    server: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        require_fit({**FIT, **server}, RedisAddress(url="redis://h"))


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru"])
def test_a_server_that_evicts_nothing_of_ours_is_fit(policy: str) -> None:
    require_fit({**FIT, "maxmemory_policy": policy}, RedisAddress(url="redis://h"))
