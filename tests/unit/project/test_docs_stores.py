"""docs/stores.md is held to the code: its addresses parse, its options and variables exist."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from changefeed.stores.addresses import STORES
from changefeed.stores.blob import address as blob
from changefeed.stores.blob.backend import BACKEND as BLOB
from changefeed.stores.postgres import address as postgres
from changefeed.stores.postgres.backend import BACKEND as POSTGRES
from changefeed.stores.redis import address as redis
from changefeed.stores.redis.backend import BACKEND as REDIS

ROOT = Path(__file__).parents[3]
HERE = str(Path("FILE").absolute())
TEXT = (ROOT / "docs/stores.md").read_text()
SCHEMES = r"(?:postgresql|rediss?|blob(?:\+http)?)"
ADDRESSES = sorted(set(re.findall(rf"['`]({SCHEMES}://[^'`…\s]+)['`]", TEXT)))


def parsed(address: str) -> Any:
    scheme, _, place = address.partition(":")
    found, _ = STORES.find(address)
    match found.name:
        case "postgres":
            return postgres.read_address(place)
        case "redis":
            return redis.read_address(scheme, place)
        case name:
            assert name == "blob"
            return blob.read_address(scheme, place)


def concrete(address: str) -> str:
    """Fill in what the page leaves to the reader."""
    return address.replace("PORT", "1234").replace("/DB", "/0")


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_on_the_page_is_one(address: str) -> None:
    assert str(parsed(concrete(address)))


def test_the_page_shows_addresses_of_every_scheme() -> None:
    schemes = {x.partition(":")[0] for x in ADDRESSES}
    assert schemes == {"postgresql", "redis", "rediss", "blob", "blob+http"}


OPTIONS: Sequence[tuple[str, str, str, object]] = (
    ("postgresql://h/db", "fleet=NAME", "fleet", "NAME"),
    ("postgresql://h/db", "schema=NAME", "schema", "NAME"),
    ("postgresql://h/db", "sslmode=verify-full&sslrootcert=FILE", "files", [HERE]),
    ("redis://h", "fleet=NAME", "fleet", "NAME"),
    ("redis://h", "cluster=true", "cluster", True),
    ("rediss://h", "ssl_ca_certs=FILE", "files", [HERE]),
    ("rediss://h", "ssl_certfile=FILE&ssl_keyfile=FILE", "files", [HERE, HERE]),
)


def test_the_options_of_addresses_on_the_page_are_these_and_do_something() -> None:
    shown = re.findall(r"^\| `\?([^`]+)`", TEXT, re.MULTILINE)
    assert shown == [option for _, option, _, _ in OPTIONS]
    for address, option, field, value in OPTIONS:
        assert getattr(parsed(address), field) != value
        assert getattr(parsed(f"{address}?{option}"), field) == value


def test_every_variable_on_the_page_is_a_secret_of_its_backend() -> None:
    backends = {"POSTGRES": POSTGRES, "REDIS": REDIS, "BLOB": BLOB}
    shown = set(re.findall(r"CHANGEFEED_BACKENDS__([A-Z]+)__([A-Z_]+)", TEXT))
    for backend, name in shown:
        settings = backends[backend].settings
        assert settings is not None
        annotation = settings.model_fields[name.lower()].annotation
        assert annotation == SecretStr | None, f"{backend} has no secret {name}"
    secrets = {
        (backend, name.upper())
        for backend, found in backends.items()
        if found.settings is not None
        for name, field in found.settings.model_fields.items()
        if field.annotation == SecretStr | None
    }
    assert shown == secrets
