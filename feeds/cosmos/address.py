"""Addresses of Cosmos DB containers, and what opens an account. Values only, no client.

``cosmos://HOST:PORT/DATABASE/CONTAINER?option=value`` is reached over https, and
``cosmos+http://…`` over plain http, which is for an emulator on this machine. Without a
host, ``cosmos:///DATABASE/CONTAINER``, a connection string says where the account is.

A secret is never part of an address, because addresses are logged. It comes from a variable
of the environment, as ``CHANGEFEED_COSMOS__KEY``, which takes a connection string, too; from
a file, which the variable with ``_FILE`` behind it names; or there is none, and the identity
of the process in Azure counts. An endpoint on this machine is an emulator, whose key is public.

Feeds and leases both use this, each with a client of its own: one account may be open to
the one and closed to the other.
"""

import base64
import ipaddress
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from changefeed.runtime.address_options import read_options
from changefeed.runtime.secret import Secret

EMULATOR_KEY = (  # no secret: every Cosmos DB emulator answers to this key
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)
_PREFIX = "CHANGEFEED_COSMOS__"
_KEY = f"{_PREFIX}KEY"
_IN_FILE = "_FILE"  # behind a secret: the file that holds it
_OF_STRING = ("AccountEndpoint", "AccountKey")
_FORM = "cosmos://HOST/DATABASE/CONTAINER"
Mode: TypeAlias = Literal["latest-version", "all-versions"]
MODES: Final[Mapping[str, Mode]] = {x: x for x in get_args(Mode)}
"""How a feed is read, by the words of addresses; the first unless one is given."""


class AddressWrong(ValueError):
    """The address, or what came with it, cannot be used. The text is the advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CosmosAddress:
    """Where a container is. ``endpoint`` is empty if a connection string is to say it."""

    endpoint: str
    database: str
    container: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> Mode:
        return MODES[self.options.get("mode", "latest-version")]

    def __str__(self) -> str:
        return f"{self.endpoint}{self.database}/{self.container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CosmosAccess:
    """What opens an account: a key, alone or in a connection string, a token of Entra ID, or a
    service principal by its secret or its certificate (PEM, with the private key).

    With none of them it is the identity of the process in Azure; ``client_id`` may name one
    that is managed. No secret is shown by ``repr``.
    """

    key: Secret | None = field(default=None, repr=False)
    token: Secret | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: Secret | None = field(default=None, repr=False)
    client_certificate: Secret | None = field(default=None, repr=False)

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "CosmosAccess":
        """Read the variables. Raise ``UserError`` for a file that cannot be read."""
        return cls.by_name(
            lambda x: _secret(environ, f"{_PREFIX}{x.upper()}"),
            lambda x: environ.get(f"{_PREFIX}{x.upper()}") or None,
        )

    @classmethod
    def by_name(
        cls, secret: Callable[[str], Secret | None], name: Callable[[str], str | None]
    ) -> "CosmosAccess":
        """Ask for each secret, and for each of the other names."""
        return cls(
            tenant_id=name("tenant_id"),
            client_id=name("client_id"),
            **{x: secret(x) for x in SECRETS},
        )

    def check(self) -> None:
        """Raise ``AddressWrong`` for several ways at once, and for half a service principal."""
        ways = [x for x in SECRETS if getattr(self, x) is not None]
        if len(ways) > 1:
            raise AddressWrong(f"{' and '.join(ways)} open an account: set one of them alone")
        principal = self.client_secret or self.client_certificate
        if principal is not None and not (self.tenant_id and self.client_id):
            raise AddressWrong(
                f"{ways[0]} is of a service principal: set its tenant_id and client_id, too"
            )


SECRETS = ("key", "token", "client_secret", "client_certificate")
"""The fields of ``CosmosAccess`` that open an account, each alone."""


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    text, file = environ.get(name), environ.get(name + _IN_FILE)
    if text:
        return Secret.of(text)
    return Secret.in_file(Path(file)) if file else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An endpoint, and the key to it; without one, ``access`` says which identity counts."""

    endpoint: str
    key: Secret | None = field(default=None, repr=False)
    access: CosmosAccess = field(default_factory=CosmosAccess)

    @property
    def host(self) -> str:
        """The host without its port, as the ids of lease documents name an account."""
        return urlsplit(self.endpoint).hostname or ""


def read_address(scheme: str, place: str, *, known: Collection[str]) -> CosmosAddress:
    """Read what follows ``cosmos:`` or ``cosmos+http:``.

    Raise ``AddressWrong`` for one that cannot be used, or has an option not in ``known``.
    """
    # No more than the scheme goes into a text before it is clear that no secret is in it.
    parts = _split(scheme, place)
    if parts.username is not None or parts.password is not None:
        raise AddressWrong(
            f"an address of Cosmos DB must not hold a key or password; set {_KEY} instead"
        )
    names = [unquote(x) for x in parts.path.split("/")[1:]]
    if len(names) != 2 or not all(names):  # noqa: PLR2004 - database and container
        raise AddressWrong(f"{scheme}:{place} names no container: write it as {_FORM}")
    options = _options(parts.query, known)
    if (mode := options.get("mode")) not in (None, *MODES):
        raise AddressWrong(f"unknown mode {mode!r} of a feed. Known modes: {', '.join(MODES)}")
    return CosmosAddress(
        endpoint=_endpoint(scheme, parts),
        database=names[0],
        container=names[1],
        options=options,
    )


def account_of(address: CosmosAddress, access: CosmosAccess) -> Account:
    """Bring an address and its secrets together.

    Raise ``AddressWrong`` if they contradict each other, or a key would cross a network
    in plain text.
    """
    access.check()
    endpoint, key = address.endpoint, access.key
    if not endpoint and key is not None:
        endpoint, _ = _read_key(key.current())
    if not endpoint:
        raise AddressWrong(
            f"the address names no host, and there is no connection string: write {_FORM}, "
            f"or set {_KEY} to a connection string"
        )
    here = is_this_machine(urlsplit(endpoint).hostname or "")
    if endpoint.startswith("http://") and not here:
        raise AddressWrong(
            f"{endpoint} is not on this machine, and plain http would show everything to "
            "the network: use cosmos:// instead of cosmos+http://"
        )
    if key is None and here and not any(getattr(access, x) for x in SECRETS):
        key = Secret.of(EMULATOR_KEY)
    if key is None and endpoint.startswith("http://"):
        raise AddressWrong(
            f"{endpoint}: no identity in Azure is shown over plain http. Use cosmos:// instead "
            f"of cosmos+http://, or a key"
        )
    checked = None if key is None else key.within(partial(_key_to, endpoint))
    return Account(endpoint=endpoint, key=checked, access=access)


def _key_to(endpoint: str, secret: str) -> str:
    """Return the key to an account as the client needs it: it signs each request, and would
    fail there.
    """
    named, key = _read_key(secret)
    if named and not _may_be_one_account(named, endpoint):
        raise AddressWrong(
            f"the connection string leads to {named}, not to {endpoint}: leave the host out of "
            f"the address (cosmos:///DATABASE/CONTAINER), or set {_KEY} to that account's key"
        )
    try:
        base64.b64decode(key, validate=True)
    except ValueError:
        raise AddressWrong(
            f"the key of Cosmos DB is not base64, so it is not a key: check whether {_KEY} was "
            "cut off, or is another secret (it is not shown here)"
        ) from None
    return key


def is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(scheme: str, place: str) -> SplitResult:
    try:
        parts = urlsplit(f"{scheme}:{place}")
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError as error:
        raise AddressWrong(
            f"this is not an address of Cosmos DB ({error}): write {_FORM}"
        ) from None
    if not place.startswith("//"):
        raise AddressWrong(f"{scheme}:{place} is not an address of Cosmos DB: write {_FORM}")
    return parts


def _endpoint(scheme: str, parts: SplitResult) -> str:
    if not parts.netloc:
        return ""
    return f"{'http' if scheme == 'cosmos+http' else 'https'}://{parts.netloc}/"


def _options(query: str, known: Collection[str]) -> Mapping[str, str]:
    options = read_options(query)
    for name in options:
        if name not in known:
            raise AddressWrong(
                f"unknown option {name!r} in this address. Known options: "
                f"{', '.join(sorted(known)) or 'none'}. (Keys do not belong there: set {_KEY}.)"
            )
    return options


def _read_key(text: str) -> tuple[str, str]:
    """Return the endpoint and the key in a connection string; of a key alone, no endpoint."""
    parts = dict(x.strip().split("=", 1) for x in text.split(";") if "=" in x)
    if parts.keys().isdisjoint(_OF_STRING):
        return "", text.strip()
    endpoint, key = (parts.get(x) for x in _OF_STRING)
    if not endpoint or not key:
        raise AddressWrong(
            "the connection string lacks AccountEndpoint=…; or AccountKey=…; (it is not "
            "shown here, because it may hold a key)"
        )
    return endpoint.rstrip("/") + "/", key.strip()


def _may_be_one_account(one: str, other: str) -> bool:
    """Whether two endpoints differ at most as the names of an account do: that of a region
    goes on behind a hyphen, and this machine has several.
    """
    (scheme, a, port), (other_scheme, b, other_port) = _place(one), _place(other)
    if (scheme, port) != (other_scheme, other_port) or a is None or b is None:
        return False
    if is_this_machine(a) and is_this_machine(b):
        return True
    (name, _, domain), (other_name, _, other_domain) = a.partition("."), b.partition(".")
    shorter, longer = sorted((name, other_name), key=len)
    return domain == other_domain and (longer == shorter or longer.startswith(f"{shorter}-"))


def _place(endpoint: str) -> tuple[str, str | None, int]:
    parts = urlsplit(endpoint)
    return parts.scheme, parts.hostname, parts.port or (80 if parts.scheme == "http" else 443)
