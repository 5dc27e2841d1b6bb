"""An account opens without a key: by a token, or as an identity that Azure manages."""

import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from changefeed.feeds.cosmos.address import Account, CosmosAccess
from changefeed.feeds.cosmos.client import client_of
from changefeed.runtime.secret import Secret
from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import entra_token


@pytest.mark.parametrize(
    ("access", "identities"),
    [
        (CosmosAccess(token=Secret.of(entra_token())), []),
        (CosmosAccess(), ["of the process"]),
        (CosmosAccess(client_id="named"), ["named"]),
    ],
    ids=["a token", "the identity of the process", "an identity by its client_id"],
)
async def test_an_account_opens_without_a_key(
    access: CosmosAccess, identities: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def give_token(request: web.Request) -> web.Response:
        asked.append(request.query["client_id"])
        given = {"resource": request.query["resource"], "token_type": "Bearer"}
        given |= {"access_token": entra_token(), "expires_on": str(int(time.time()) + 3600)}
        return web.json_response(given)

    app = web.Application()
    app.router.add_get("/", give_token)
    async with TestServer(app) as azure, running(EmulatorSettings(port=0, tls=True)) as url:
        monkeypatch.setenv("IDENTITY_ENDPOINT", str(azure.make_url("/")))
        monkeypatch.setenv("IDENTITY_HEADER", "shown to it alone")
        monkeypatch.setenv("AZURE_CLIENT_ID", "of the process")
        async with client_of(Account(endpoint=url, access=access)):
            assert asked == identities
