"""What users' tests get: an account of their own, and the power over it."""

import asyncio
import gc
import socket
import ssl
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_emulator.settings import EmulatorSettings
from cosmos_emulator.testing import Account, account_in_thread, running

pytest_plugins = ["pytester"]


@pytest.fixture
def items(cosmos_account: Account) -> Any:
    client = CosmosClient(
        cosmos_account.url, cosmos_account.key, retry_total=0, retry_write=False
    )
    database = client.create_database("d")
    return database.create_container("c", PartitionKey("/pk"))


@pytest.mark.parametrize("_round", [1, 2])
def test_each_test_has_an_account_of_its_own(items: Any, _round: int) -> None:
    assert list(items.read_all_items()) == []
    items.create_item({"id": "1", "pk": "p"})


def test_ranges_split_and_merge(cosmos_account: Account, items: Any) -> None:
    assert len(list(items.read_feed_ranges())) == 1
    children = cosmos_account.split("d", "c")
    assert len(list(items.read_feed_ranges(force_refresh=True))) == 2
    cosmos_account.merge("d", "c", [x["id"] for x in children])
    assert len(list(items.read_feed_ranges(force_refresh=True))) == 1


def test_a_fault_strikes_until_it_is_healed(cosmos_account: Account, items: Any) -> None:
    cosmos_account.fault("error", "create_item", status=403)
    with pytest.raises(CosmosHttpResponseError) as refused:
        items.create_item({"id": "1", "pk": "p"})
    assert refused.value.status_code == 403
    cosmos_account.heal()
    items.create_item({"id": "1", "pk": "p"})


def test_what_the_emulator_refuses_is_an_error_with_its_advice(
    cosmos_account: Account,
) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        cosmos_account.split("nowhere", "c")


def test_the_connection_string_opens_it(cosmos_account: Account) -> None:
    client = CosmosClient.from_connection_string(cosmos_account.connection_string)
    assert list(client.list_databases()) == []


def test_it_is_gone_after_the_test(pytester: pytest.Pytester) -> None:
    """Also where another plugin has a loop of its own, and with nothing else set up."""
    pytester.makepyfile(
        """
        from urllib.request import urlopen

        urls = []

        def test_first(cosmos_account):
            urls.append(cosmos_account.url)
            assert urlopen(cosmos_account.url + "_emulator").status == 200

        def test_second():
            try:
                urlopen(urls[0] + "_emulator", timeout=5)
            except OSError:
                return
            raise AssertionError("it is still there")
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


async def test_a_connection_that_comes_as_the_block_ends_is_closed() -> None:
    with warnings.catch_warnings(record=True, action="always") as warned:
        for turns in range(4):
            async with running() as url:
                client = socket.create_connection(("127.0.0.1", int(url.split(":")[2][:-1])))
                for _ in range(turns):
                    await asyncio.sleep(0)
            client.close()
        gc.collect()
    assert not warned


def test_a_connection_that_is_idle_as_the_block_ends_is_closed(tmp_path: Path) -> None:
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings(record=True, action="always") as warned:
        with account_in_thread(EmulatorSettings(port=0, tls=True, data=tmp_path)) as account:
            where = urlsplit(account.url)
            plain = socket.create_connection((where.hostname, where.port))
            client = anyone.wrap_socket(plain)
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(1)
        gc.collect()
        client.close()
    assert not warned
