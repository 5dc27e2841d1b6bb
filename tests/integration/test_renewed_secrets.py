"""Keys, passwords, tokens and certificates that are renewed in their files under open clients.

The old one ends in the same moment. What a client has under way may be refused then, as one
whose answer comes too late is; asked again, it must be answered.
"""

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.errors import FeedError
from changefeed.leases.addresses import open_container
from changefeed.log.brokers.settings import WebSection
from changefeed.log.client.access import BrokerAccess, BrokersSettings
from changefeed.log.client.client import BrokerClient
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.secret import Secret
from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import connect
from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import hand
from tests.integration.brokers.test_brokers_over_tls import over_tls
from tests.integration.test_store_certificates import signed
from tests.integration.test_store_leases import own
from tests.support.broker_cluster import ACCESS, COLLECTION, address_of, broker
from tests.support.certificates import Authority
from tests.support.servers import Azurite, Postgres, Redis, free_port

HERE = "127.0.0.1"
CONNECTIONS = 4  # each of a pool may notice by itself that its server went
OTHER = DEVELOPMENT_KEY[::-1].strip("=") + "=="
T = TypeVar("T")


async def asked_again(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask as hosts do: neither silence nor a refusal that may pass is an answer yet."""
    for _ in range(CONNECTIONS):
        try:
            return await ask()
        except (FeedError, StoreError) as error:
            if isinstance(error, UserError) and not error.may_pass:
                raise
    return await ask()


class Kept:
    """A file with a secret."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def holds(self, text: str) -> None:
        self.path.write_text(text)


@pytest.fixture
def file(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "secret")


@pytest.mark.parametrize("form", ["{}", "AccountEndpoint=http://{here}/;AccountKey={}"])
async def test_the_key_to_an_account_of_cosmos(file: Kept, form: str) -> None:
    emulator = EmulatorSettings(port=free_port(), data=file.path.with_name("account"))
    text = form.replace("{here}", f"{HERE}:{emulator.port}")
    file.holds(text.format(DEVELOPMENT_KEY))
    access = CosmosAccess.of({"CHANGEFEED_COSMOS__KEY_FILE": file.name})
    options = OpenOptions(create=True, cosmos=access)
    async with contextlib.AsyncExitStack() as stack:
        async with running(emulator) as url, hand(url):
            at = f"cosmos+{url}d/"
            leases = await stack.enter_async_context(open_container(f"{at}leases", options))
            feed = await stack.enter_async_context(open_feed(f"{at}c", options))
        async with running(replace(emulator, key=OTHER)):
            file.holds("no key!")  # half written: the last one is kept
            with pytest.raises(UserError):
                await leases.list()
            file.holds(text.format(OTHER))
            assert not await asked_again(leases.list)
            assert len(await asked_again(feed.ranges)) == 1


@pytest.mark.parametrize("user", ["", "app@"])
async def test_the_password_of_redis(file: Kept, user: str) -> None:
    with own(Redis) as server:

        def renew(password: str) -> None:
            file.holds(password)
            name, rights = user.strip("@") or "default", "~* +@all"
            for command in (
                f"ACL SETUSER {name} reset on >{password} {rights}",
                "CLIENT KILL TYPE normal",  # a connection that is open stays open
            ):
                server.ask("AUTH admin x\r\n", command)

        server.ask("ACL SETUSER admin on >x +@all")
        renew("one")
        address = server.url.replace("//", f"//{user}")
        options = OpenOptions(backends={"redis": {"password_file": file.name}})
        async with open_container(address, options) as leases:
            renew("two")
            assert not await asked_again(leases.list)


async def test_the_password_of_postgresql(file: Kept) -> None:
    with own(Postgres) as server:
        file.holds("one")
        options = OpenOptions(create=True, backends={"postgres": {"password_file": file.name}})
        async with (
            open_container(server.url, options) as leases,
            connect(read_address(server.url.removeprefix("postgresql:"))) as database,
        ):
            await database.fetch("alter role postgres password 'two'")
            server.stop()
            (server.data / "pg_hba.conf").write_text(f"host all all {HERE}/32 password\n")
            server.start()
            file.holds("two")
            assert not await asked_again(leases.list)


class TwoKeys(Azurite):
    """An account with one key after the other."""

    account = "ours"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"AZURITE_ACCOUNTS": f"{self.account}:{self.key}"}


@pytest.mark.parametrize("kind", ["key", "connection_string"])
async def test_the_key_to_an_account_of_blobs(file: Kept, kind: str) -> None:
    with own(TwoKeys) as server:
        file.holds(getattr(server, kind))
        options = OpenOptions(create=True, backends={"blob": {"key_file": file.name}})
        async with open_container(f"blob+{server.endpoint}/leases/p", options) as leases:
            server.stop()
            server.key = DEVELOPMENT_KEY
            server.start()
            file.holds(getattr(server, kind))
            assert not await asked_again(leases.list)


async def test_the_token_of_brokers_at_both_ends(file: Kept) -> None:
    file.holds("one")
    token = WebSection.model_validate({"token_file": file.path}).secret
    assert token is not None
    async with broker(MemoryStore(), token=token) as (core, at):
        await core.catalogs.create(COLLECTION, parts=2)
        access = BrokerAccess.of(BrokersSettings.model_validate({"token_file": file.path}))
        async with BrokerClient.open(address_of(at), access) as client:
            file.holds("two")
            await client.routes()
        shown = replace(access, token=Secret.of("one"))
        async with BrokerClient.open(address_of(at), shown) as client:
            with pytest.raises(UserError, match="BROKERS__TOKEN"):
                await client.routes()


class Renewed:
    """An authority whose certificate, and that of the server, are replaced in their files."""

    def __init__(self, place: Path) -> None:
        self.authority, self._next = Authority(place / "one"), Authority(place / "two")
        self.server = self.authority.issue(HERE)

    def renew(self) -> None:
        pairs = zip(self._next.issue(HERE), self.server, strict=True)
        for new, old in (*pairs, (self._next.certificate, self.authority.certificate)):
            old.write_bytes(new.read_bytes())


@pytest.fixture
def files(tmp_path: Path) -> Renewed:
    return Renewed(tmp_path)


async def test_the_certificates_of_redis(files: Renewed) -> None:
    certificate, key = files.server
    port, authority = free_port(), files.authority.certificate
    options = (
        *("--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", authority),
        *("--tls-cert-file", certificate, "--tls-key-file", key),
    )
    address = f"rediss://{HERE}:{port}/0?ssl_ca_certs={authority}"
    with own(lambda: Redis(*map(str, options))) as server:
        async with open_container(address, OpenOptions()) as leases:
            server.kill()
            files.renew()
            server.start()
            assert not await asked_again(leases.list)


async def test_the_certificates_of_postgresql(files: Renewed) -> None:
    def placed(server: Postgres) -> Postgres:
        for file, name in zip(files.server, ("server.crt", "server.key"), strict=True):
            server.place(file, name)
        return server

    with own(lambda: placed(Postgres("ssl=on"))) as server:
        address = signed(server.url, files.authority)
        async with open_container(address, OpenOptions(create=True)) as leases:
            server.stop()
            files.renew()
            placed(server).start()
            assert not await asked_again(leases.list)


async def test_the_certificates_of_brokers_at_both_ends(files: Renewed) -> None:
    certificate, key = files.server
    web = WebSection(certificate_file=certificate, key_file=key)
    access = replace(ACCESS, ca_file=files.authority.certificate)
    async with broker(MemoryStore(), tls=web.tls) as (core, at):
        await core.catalogs.create(COLLECTION, parts=2)
        async with BrokerClient.open(over_tls(at), access) as client:
            files.renew()
            await asked_again(client.routes)
        async with BrokerClient.open(over_tls(at), access) as client:
            await client.routes()  # it trusts the new authority alone
