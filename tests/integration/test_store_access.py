"""How hosts are let in to PostgreSQL and Azure Blob, and what a check says of it."""

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import check_leases, open_container
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.postgres.address import read_address
from changefeed.leases.postgres.connection import connect
from changefeed.runtime.diagnostics import Severity
from tests.integration.test_store_leases import (
    azurite,
    opening,
    postgres,
    severities,
    works,
)
from tests.support.servers import Azurite, Postgres

pytestmark = pytest.mark.real_time
__all__ = ["azurite", "postgres"]  # the fixtures


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


def opened_by(text: str, *, create: bool = True) -> OpenOptions:
    return OpenOptions(create=create, backends={"blob": {"connection_string": text}})


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
    with pytest.raises(ContainerRefused, match="name the same account"):
        async with open_container(address, opened_by(other)):
            pass
    with pytest.raises(ContainerRefused, match="CONNECTION_STRING"):
        async with open_container("blob:///by-string/third", OpenOptions(create=True)):
            pass
