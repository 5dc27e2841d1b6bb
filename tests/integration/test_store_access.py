"""How hosts are let in to PostgreSQL, Redis and Azure Blob, and what a check says of it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import check_leases, open_container
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.postgres.address import read_address
from changefeed.leases.postgres.connection import connect
from changefeed.runtime.diagnostics import Severity
from tests.integration.test_store_leases import (
    azurite,
    opening,
    own,
    postgres,
    redis,
    severities,
    works,
)
from tests.support.servers import Azurite, Postgres, Redis, free_port

pytestmark = pytest.mark.real_time
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


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself; its key is beside it."""
    try:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
                *("-keyout", "tls.key", "-out", "tls.crt", "-subj", "/CN=changefeed"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("OpenSSL is not installed: apt-get install openssl")
    return tmp_path / "tls.crt"


@pytest.fixture
def over_tls(redis: Redis, certificate: Path) -> Iterator[str]:
    """The address of a Redis that speaks TLS and asks its clients for no certificate."""
    del redis  # skipped where there is none
    port, key = free_port(), certificate.with_suffix(".key")
    options = (
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-cert-file", str(certificate), "--tls-key-file", str(key)),
        *("--tls-ca-cert-file", str(certificate)),
    )
    with own(lambda: Redis(*options)):
        yield f"rediss://127.0.0.1:{port}/0"


async def test_redis_over_tls_is_one_whose_certificate_is_known(
    over_tls: str, certificate: Path
) -> None:
    await works(f"{over_tls}?ssl_ca_certs={certificate}", opening())
    with pytest.raises(ContainerUnavailable, match="ssl_ca_certs=FILE"):
        async with open_container(over_tls, opening()):
            pass
    plain = over_tls.replace("rediss:", "redis:")
    with pytest.raises(ContainerUnavailable):
        async with open_container(plain, opening()):
            pass


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
