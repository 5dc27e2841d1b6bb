"""The client of an account, for feeds and leases, by its key or by an identity in Azure; and a
container that answers.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient

from changefeed.feeds.cosmos.address import (
    Account,
    AddressWrong,
    CosmosAccess,
    CosmosAddress,
    account_of,
    is_this_machine,
)
from changefeed.feeds.cosmos.errors import Translator, no_account
from changefeed.feeds.cosmos.failover import Failover
from changefeed.runtime.secret import Secret

_TOKEN_SECONDS = 600  # the client asks again five minutes before a token ends
_PROPERTIES = {"_rid", "partitionKey"}  # of each container
_HERE = ("localhost", "127.0.0.1", "::1")

LEASE_OPTIONS: dict[str, Any] = {
    # Retries are the host's: it knows what became of the lease meanwhile. The client
    # multiplies its own ((n+1)² requests for a 429 that lasts), and 0 means its default.
    "retry_total": 1,
    "retry_throttle_total": 1,
    "retry_backoff_max": 1,
    "connection_timeout": 5,
    "read_timeout": 30,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container that has answered. ``where`` is what messages call it."""

    where: str
    failover: Failover
    properties: Mapping[str, Any]

    @property
    def proxy(self) -> ContainerProxy:
        return self.failover.container

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, proxy: ContainerProxy, translator: Translator
    ) -> AsyncIterator["Container"]:
        """Open a container of a client that is open."""
        endpoint = urlsplit(proxy.client_connection.url_connection)
        _, database, _, name = proxy.container_link.split("/")
        where = f"{endpoint.scheme}://{endpoint.netloc}/{database}/{name}"
        async with Failover.opened(proxy) as failover:
            found = await translator.asked(where, failover.ask(proxy.read()))
            if not found.keys() >= _PROPERTIES:
                raise translator.unavailable(no_account(where, "no properties"), None)
            yield cls(where=where, failover=failover, properties=found)


@asynccontextmanager
async def connect(
    address: CosmosAddress, access: CosmosAccess, translator: Translator, **options: Any
) -> AsyncIterator[CosmosClient]:
    """Open a client of the account at an address."""
    with translator.errors(str(address)):
        account = account_of(address, access)
    async with AsyncExitStack() as stack:
        opening = stack.enter_async_context(client_of(account, **options))
        yield await translator.asked(account.endpoint, opening)


def container_of(client: CosmosClient, address: CosmosAddress) -> ContainerProxy:
    return client.get_database_client(address.database).get_container_client(address.container)


@asynccontextmanager
async def client_of(account: Account, **options: Any) -> AsyncIterator[CosmosClient]:
    """Yield a client that has spoken to the account, open as long as the block lasts.

    ``options`` are the client's. Raise ``AddressWrong`` where there is neither a key nor an
    identity, and what the client raises.
    """
    async with AsyncExitStack() as stack:
        credential: Any
        if account.key is not None:
            credential = account.key.current()
        elif account.access.token is not None:
            credential = _GivenToken(account.access.token)
        else:
            credential = await stack.enter_async_context(_identity(account))
        here = is_this_machine(account.host)
        options["enable_endpoint_discovery"] = not here
        client = await stack.enter_async_context(_entered(account, credential, options))
        # An emulator of one region may not know by which address it is reached.
        if here and await _has_several_regions(client):
            options["enable_endpoint_discovery"] = True
            client = await stack.enter_async_context(_entered(account, credential, options))
        yield client


@asynccontextmanager
async def _entered(
    account: Account, credential: Any, options: Mapping[str, Any]
) -> AsyncIterator[CosmosClient]:
    transport = _Transport(use_env_settings=has_proxy(account.endpoint))
    # TLS is verified by the client, but for endpoints on this machine.
    client = CosmosClient(
        account.endpoint,
        credential,
        user_agent_suffix="changefeed-host",
        transport=transport,
        **options,
    )
    if account.key is not None:
        transport.renew = partial(_renew, client, account.key)
    try:  # before it is entered: it leaves a session open if the account does not answer
        yield await client.__aenter__()
    finally:
        await client.close()


async def _has_several_regions(client: CosmosClient) -> bool:
    said = await client.client_connection.GetDatabaseAccount()
    return len(said.ReadableLocations) > 1


def require_async(container: object) -> None:
    """Raise ``AddressWrong`` for a container of the client that is not async, and for what is
    no container.
    """
    if not isinstance(container, ContainerProxy):
        kind = f"{type(container).__module__}.{type(container).__qualname__}"
        raise AddressWrong(
            f"a processor reads through azure.cosmos.aio.ContainerProxy, and got {kind}: get "
            f"the container from azure.cosmos.aio.CosmosClient"
        )


async def hosts_of(container: ContainerProxy) -> Sequence[str]:
    """Return the hosts under which the account of a container is reached, first the one that
    its client was given.

    An account has a name for each of its regions, which is its own name and that of the
    region. One on this machine says by which name it was asked.
    """
    connection = container.client_connection
    own = urlsplit(connection.url_connection).hostname or ""
    said = await connection.GetDatabaseAccount()
    found = [own]
    if is_this_machine(own):
        found += _HERE
    for region in (*said.WritableLocations, *said.ReadableLocations):
        host = urlsplit(region["databaseAccountEndpoint"]).hostname or own
        name, _, domain = host.partition(".")
        of_region = "-" + region["name"].replace(" ", "").lower()
        found += [f"{name.removesuffix(of_region)}.{domain}", host] if domain else [host]
    return list(dict.fromkeys(found))


async def forget_deleted(container: ContainerProxy) -> None:
    """Let the client forget a container that was deleted, if there is a new one of its name.

    It would ask the new one for what it has seen of the old one, and be refused for ever.
    """
    rid = (await container.read())["_rid"]
    session = container.client_connection.session
    kept = None if session is None else session.session_container
    if kept is not None and kept.collection_name_to_rid.get(container.container_link) != rid:
        old = kept.collection_name_to_rid.pop(container.container_link, None)
        kept.rid_to_session_token.pop(old, None)


class _Transport(AioHttpTransport):  # type: ignore[misc] # it has no types
    """Calls ``renew`` with each request. That one is signed by then: the next one profits."""

    renew: Callable[[], None] | None = None

    async def send(self, request: Any, **config: Any) -> Any:
        if self.renew is not None:
            self.renew()
        return await super().send(request, **config)


def _renew(client: CosmosClient, key: Secret) -> None:
    client.client_connection.master_key = key.current()


def has_proxy(url: str) -> bool:
    """Say whether the environment names a proxy for addresses of this scheme.

    The client's transport would look there before each request, in another thread: that
    takes longer than a small answer does, and much longer while this process is busy.
    Which hosts go past a proxy, it still decides by itself.
    """
    return urlsplit(url).scheme in getproxies()


class _GivenToken:
    """A token that somebody else has got, as a credential. The client asks for it again and
    again, and it may be another by then.
    """

    def __init__(self, token: Secret) -> None:
        self._token = token

    async def get_token(self, *_: str, **__: Any) -> AccessToken:
        return AccessToken(self._token.current(), int(time.time()) + _TOKEN_SECONDS)


def _identity(account: Account) -> Any:
    """Return a credential: of the service principal, if there is one, or of this process."""
    try:
        from azure.identity.aio import (  # noqa: PLC0415 - an extra, for those who use it
            CertificateCredential,
            ClientSecretCredential,
            DefaultAzureCredential,
        )
    except ImportError as error:
        raise AddressWrong(
            f"there is no key for {account.endpoint}: set CHANGEFEED_COSMOS__KEY; or, to use "
            f"an identity in Azure, pip install 'changefeed-host[azure]'"
        ) from error
    access = account.access
    principal = (access.tenant_id or "", access.client_id or "")
    if access.client_secret is not None:
        return ClientSecretCredential(*principal, access.client_secret.current())
    if access.client_certificate is not None:
        certificate = access.client_certificate.current().encode()
        try:
            return CertificateCredential(*principal, certificate_data=certificate)
        except ValueError:
            raise AddressWrong(
                "client_certificate is no certificate with a private key, both in PEM (it is "
                "not shown here)"
            ) from None
    managed = (
        {} if access.client_id is None else {"managed_identity_client_id": access.client_id}
    )
    return DefaultAzureCredential(**managed)
