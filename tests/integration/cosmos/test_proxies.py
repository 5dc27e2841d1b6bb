"""Accounts that are reached through a proxy, by what the environment says."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from azure.core.exceptions import ServiceRequestError

from changefeed.feeds.cosmos.address import EMULATOR_KEY, Account
from changefeed.feeds.cosmos.client import client_of, has_proxy
from changefeed.runtime.secret import Secret
from cosmos_emulator import EmulatorSettings, create_app

ELSEWHERE = Account(endpoint="http://cosmos.invalid:80/", key=Secret.of(EMULATOR_KEY))


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest_asyncio.fixture
async def proxy() -> AsyncIterator[str]:
    """An emulator, which answers what is asked of another host as its proxy would."""
    settings = EmulatorSettings(port=0, host_names=("cosmos.invalid",))
    async with TestServer(create_app(settings)) as server:
        yield str(server.make_url("/"))


async def test_an_account_is_asked_through_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    async with client_of(ELSEWHERE) as client:
        await client.create_database("d")
        assert [x["id"] async for x in client.list_databases()] == ["d"]


async def test_an_account_that_is_to_go_past_the_proxy_does(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "cosmos.invalid")
    with pytest.raises(ServiceRequestError):
        async with client_of(ELSEWHERE, retry_total=1, retry_backoff_max=1):
            pass


def test_a_proxy_is_one_for_addresses_of_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not has_proxy("https://a.documents.azure.com:443/")
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert not has_proxy("https://a.documents.azure.com:443/")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    assert has_proxy("https://a.documents.azure.com:443/")
