"""How hosts are let in to PostgreSQL, Redis and Azure Blob, and what a check says of it."""

import re
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import check_leases, open_container
from changefeed.runtime.diagnostics import Severity
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import connect
from tests.integration.test_store_leases import (
    azurite,
    one_node_cluster,
    opening,
    own,
    postgres,
    redis,
    severities,
    works,
)
from tests.support.servers import Azurite, Postgres, Redis, free_port

__all__ = ["azurite", "postgres", "redis"]  # the fixtures


async def test_a_role_whose_commits_are_not_waited_for_is_warned_of(postgres: Postgres) -> None:
    address = f"{postgres.url}?schema=hasty"
    async with open_container(address, opening()):
        pass
    async with connect(read_address(address.removeprefix("postgresql:"))) as database:
        await database.fetch("create role hasty superuser login")
        await database.fetch("alter role hasty set synchronous_commit = off")
    assert (await severities(address, opening()))["durability"] is Severity.FINE
    hasty = address.replace("//postgres@", "//hasty@")
    found = {x.about: x async for x in check_leases(hasty, opening(), feed="memory:x")}
    assert found["durability"].severity is Severity.WARNING
    assert "half a second" in found["durability"].text
    assert {x.severity for x in found.values()} == {Severity.FINE, Severity.WARNING}


PAGE = Path(__file__).parents[2] / "docs/stores.md"


@pytest.mark.parametrize("cluster", [False, True], ids=["one server", "cluster"])
async def test_a_user_of_redis_needs_the_rights_that_the_page_says_and_no_others(
    redis: Redis, *, cluster: bool
) -> None:
    del redis  # skipped where there is none
    (rights,) = re.findall(r"`(~changefeed[^`]+)`, and `(\+cluster)`", PAGE.read_text())
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    secret = OpenOptions(backends={"redis": {"password": "secret"}})
    with own(lambda: Redis(*(options if cluster else ()))) as server:
        if cluster:
            await one_node_cluster(server)
        address = server.url.replace("//", "//app@") + ("?cluster=true" if cluster else "")
        wanted = " ".join(rights if cluster else rights[:1]).split()
        assert server.ask("ACL", "SETUSER", "app", "on", ">secret", *wanted).startswith("+OK")
        await works(address, secret)
        assert Severity.PROBLEM not in (await severities(address, secret)).values()
        for right in (x for x in wanted if x.startswith("+")):
            server.ask("ACL", "SETUSER", "app", right.replace("+", "-", 1))
            with pytest.raises(StoreRefused, match="this user needs"):
                await works(address, secret)
            server.ask("ACL", "SETUSER", "app", right)


def opened_by(text: str, *, create: bool = True) -> OpenOptions:
    return OpenOptions(create=create, backends={"blob": {"key": text}})


async def test_a_connection_string_opens_blobs_and_says_their_account(azurite: Azurite) -> None:
    text = azurite.connection_string
    await works("blob:///by-string/first", opened_by(text))
    address = f"blob+{azurite.endpoint}/by-string/second"
    await works(address, opened_by(text))
    found = await severities("blob:///by-string/first", opened_by(text))
    assert set(found.values()) == {Severity.FINE}


async def test_a_connection_string_for_another_account_is_refused(azurite: Azurite) -> None:
    other = azurite.connection_string.replace(f":{azurite.port}/", ":1/")
    address = f"blob+{azurite.endpoint}/by-string/third"
    with pytest.raises(StoreRefused, match="name the same account"):
        async with open_container(address, opened_by(other)):
            pass
    with pytest.raises(StoreRefused, match="needs a connection string"):
        async with open_container("blob:///by-string/third", OpenOptions(create=True)):
            pass
