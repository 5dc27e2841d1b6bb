"""PostgreSQL, Redis, Azure Blob and Cosmos DB over TLS: whose certificates are taken.

The servers are real, and their certificates signed by an authority of the test. What is not
trusted is refused, and said with what to do: to try it again would never help.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from changefeed.feeds.addresses import open_feed
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.errors import FeedRefused
from changefeed.leases.addresses import open_container
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from cosmos_emulator import DEVELOPMENT_KEY
from tests.integration.test_store_leases import opening, own, works
from tests.support.certificates import Authority
from tests.support.commands import a_log_of, changefeed
from tests.support.emulator_process import emulator_process
from tests.support.processes import PATIENCE
from tests.support.servers import Azurite, Postgres, Redis, free_port

HERE = "127.0.0.1"
NOT_LOCALHOST = "127.0.0.2"
"""Azure's client trusts any certificate of localhost and 127.0.0.1."""


async def refusal(address: str, options: OpenOptions | None = None) -> str:
    """Return what it is refused for; a server may hang up before its alert comes in."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with contextlib.suppress(StoreUnavailable):
                with pytest.raises(StoreRefused) as refused:
                    async with open_container(address, options or opening()):
                        pass
                return str(refused.value)
            await asyncio.sleep(0.1)


def ends_with_2(place: Path, leases: str, **env: str) -> str:
    """Run a host, which must end with 2; return what it said."""
    a_log_of(4, place)
    options = ("--feed=eventlog:log", "--observer=log", f"--leases={leases}")
    ended = changefeed("run", *options, "--set=leases.create=true", cwd=place, env=env)
    assert ended.returncode == 2, ended.stderr
    return " ".join(ended.stderr.split())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "known")


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """An authority that signs, and that the other side does not know."""
    return Authority(tmp_path / "unknown")


# PostgreSQL


@contextlib.contextmanager
def postgres_over_tls(
    authority: Authority, *, name: str = HERE, hba: str | None = None
) -> Iterator[str]:
    """Start a server with a certificate for ``name``; yield its address."""

    def make() -> Postgres:
        server = Postgres("ssl=on", "ssl_ca_file=root.crt")
        certificate, key = authority.issue(name)
        server.place(certificate, "server.crt")
        server.place(key, "server.key")
        server.place(authority.certificate, "root.crt")
        if hba is not None:
            (server.data / "pg_hba.conf").write_text(f"{hba}\n")
        return server

    with own(make) as server:
        yield server.url


def signed(url: str, by: Authority, mode: str = "verify-full") -> str:
    return f"{url}?sslmode={mode}&sslrootcert={quote(str(by.certificate))}"


async def test_postgresql_is_taken_whose_authority_is_named_and_refused_else(
    authority: Authority, stranger: Authority
) -> None:
    with postgres_over_tls(authority) as address:
        await works(signed(address, authority), opening())
        said = await refusal(signed(address, stranger))
    assert "its certificate is not trusted" in said
    assert "sslrootcert=FILE" in said


async def test_postgresql_under_a_name_that_is_not_in_its_certificate_is_refused(
    authority: Authority,
) -> None:
    with postgres_over_tls(authority, name="db.example.com") as address:
        assert "is not valid for '127.0.0.1'" in await refusal(signed(address, authority))
        await works(signed(address, authority, "verify-ca"), opening())


async def test_postgresql_that_asks_for_a_certificate_gets_one_that_it_trusts(
    authority: Authority, stranger: Authority
) -> None:
    hba = f"hostssl all all {HERE}/32 trust clientcert=verify-ca"
    with postgres_over_tls(authority, hba=hba) as address:
        trusting = signed(address, authority)
        assert "requires a valid client certificate" in await refusal(trusting)
        certificate, key = authority.issue("app")
        await works(f"{trusting}&sslcert={certificate}&sslkey={key}", opening())
        certificate, key = stranger.issue("app")
        said = await refusal(f"{trusting}&sslcert={certificate}&sslkey={key}")
        assert "does not take the certificate of this client" in said


async def test_postgresql_without_tls_is_refused_where_it_is_asked_for() -> None:
    with own(Postgres) as server:
        said = await refusal(f"{server.url}?sslmode=require")
    assert "rejected SSL upgrade; is it PostgreSQL? Switch TLS on there" in said


async def test_files_that_are_missing_or_no_certificates_are_refused(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.pem", tmp_path / "empty.pem"
    empty.touch()
    postgres = "postgresql://app@127.0.0.1:1/app?sslmode=verify-full"
    redis = "rediss://127.0.0.1:1/0"
    assert f"{missing} cannot be read" in await refusal(f"{postgres}&sslrootcert={missing}")
    assert "cannot be used" in await refusal(f"{postgres}&sslrootcert={empty}")
    assert f"{missing} cannot be read" in await refusal(f"{redis}?ssl_ca_certs={missing}")
    assert "does not know an option" in await refusal(f"{redis}?ssl_nonsense=1")


# Redis


@contextlib.contextmanager
def redis_over_tls(authority: Authority, *, asks: str = "no") -> Iterator[str]:
    port = free_port()
    certificate, key = authority.issue(HERE)
    options = (
        *("--tls-port", str(port), "--tls-auth-clients", asks),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
        *("--tls-ca-cert-file", str(authority.certificate)),
    )
    with own(lambda: Redis(*options)):
        yield f"rediss://{HERE}:{port}/0"


async def test_redis_is_taken_whose_authority_is_named_and_refused_else(
    authority: Authority, stranger: Authority
) -> None:
    with redis_over_tls(authority) as address:
        await works(f"{address}?ssl_ca_certs={authority.certificate}", opening())
        said = await refusal(f"{address}?ssl_ca_certs={stranger.certificate}")
        with pytest.raises(StoreUnavailable):  # it cannot be seen what is wrong
            async with open_container(address.replace("rediss:", "redis:"), opening()):
                pass
    assert "its certificate is not trusted" in said
    assert "ssl_ca_certs=FILE" in said


async def test_redis_that_asks_for_a_certificate_gets_one_that_it_trusts(
    authority: Authority, stranger: Authority
) -> None:
    def presenting(signed_by: Authority) -> str:
        certificate, key = signed_by.issue("app")
        return f"&ssl_certfile={certificate}&ssl_keyfile={key}"

    with redis_over_tls(authority, asks="yes") as address:
        trusting = f"{address}?ssl_ca_certs={authority.certificate}"
        await works(trusting + presenting(authority), opening())
        unknown = await refusal(trusting + presenting(stranger))
        without = await refusal(trusting)
    assert "it does not take the certificate of this client" in unknown
    assert "or wants one (tlsv13 alert certificate required)" in without
    assert "ssl_certfile=FILE" in without


# Azure


@contextlib.contextmanager
def azurite_over_tls(authority: Authority) -> Iterator[str]:
    """Yield a connection string."""
    certificate, key = authority.issue(HERE)
    with own(lambda: Azurite("--cert", str(certificate), "--key", str(key))) as server:
        yield server.connection_string


async def test_blobs_of_an_unknown_authority_end_a_host_with_advice_that_helps(
    authority: Authority, tmp_path: Path
) -> None:
    with azurite_over_tls(authority) as text:
        env = {"CHANGEFEED_BACKENDS__BLOB__KEY": text}
        said = ends_with_2(tmp_path, "blob:///leases/a", **env)
        assert "its certificate is not trusted" in said
        assert "SSL_CERT_FILE" in said
        env["SSL_CERT_FILE"] = str(authority.certificate)
        asked = (
            "doctor",
            "--watch=0",
            "--feed=eventlog:log",
            "--json",
            "--leases=blob:///leases/a",
        )
        assert "404 ContainerNotFound" in changefeed(*asked, cwd=tmp_path, env=env).stdout


@contextlib.asynccontextmanager
async def cosmos_over_tls(authority: Authority, place: Path) -> AsyncIterator[str]:
    certificate, key = authority.issue(NOT_LOCALHOST)
    (place / "data").mkdir()
    pem = key.read_bytes() + certificate.read_bytes()
    (place / "data" / "emulator.pem").write_bytes(pem)
    options = ("--tls", "--data=data", f"--host={NOT_LOCALHOST}")
    async with emulator_process(place, *options) as (_, url):
        yield url.removeprefix("https:").rstrip("/")


async def test_cosmos_of_an_unknown_authority_ends_a_host_with_advice_that_helps(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"CHANGEFEED_COSMOS__KEY": DEVELOPMENT_KEY}
    monkeypatch.setenv(*next(iter(env.items())))
    async with cosmos_over_tls(authority, tmp_path) as place:
        leases = f"cosmos:{place}/db/leases"
        said = ends_with_2(tmp_path, leases, **env)
        assert "its certificate is not trusted" in said
        assert "SSL_CERT_FILE" in said
        with pytest.raises(FeedRefused, match="SSL_CERT_FILE"):
            async with open_feed(f"cosmos:{place}/db/items"):
                pass
        env["SSL_CERT_FILE"] = str(authority.certificate)
        asked = ("doctor", "--watch=0", "--feed=eventlog:log", "--json", f"--leases={leases}")
        found = changefeed(*asked, cwd=tmp_path, env=env).stdout
        assert "404" in found  # it answers: there is no such container yet
