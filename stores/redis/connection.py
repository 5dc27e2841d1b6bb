"""A client for one Redis, and what its server says of itself."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import RedisClusterException, RedisError

from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.secret import Secret
from changefeed.runtime.tls import unreadable_file
from changefeed.stores.redis.address import RedisAddress
from changefeed.stores.redis.errors import is_read_only, translate_errors

_OPTIONS: dict[str, Any] = {
    "socket_connect_timeout": 5,
    "socket_timeout": 30,
    "socket_keepalive": True,
    "health_check_interval": 30,
    "client_name": "changefeed-host",
}
_AT_ONCE = 16
_ALERT_WITHIN_S = 2.0
_TRIES = 1  # a connection that was closed while it was idle; scripts know their own write

Info = Mapping[str, Any]


class _Credentials(CredentialProvider):
    """What each connection of a client is opened with."""

    def __init__(self, user: str, password: Secret) -> None:
        self._user = user
        self._password = password

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._password.current()
        return (self._user, password) if self._user else (password,)

    async def get_credentials_async(self) -> tuple[str] | tuple[str, str]:
        return self.get_credentials()


class _TLSConnection(SSLConnection):
    """Reads the files of certificates whenever it connects: the client does it once."""

    def _connection_arguments(self) -> Mapping[str, Any]:
        self.ssl_context.context = None
        return super()._connection_arguments()


class RedisCalls:
    """The calls of one client: a few at a time, and their errors in ours.

    Each call under way has a connection of its own, and where there are too many the client
    raises. A host that renews or releases hundreds of leases at once waits instead.
    """

    def __init__(self, client: Any, address: RedisAddress) -> None:
        self.where = str(address)
        self._client = client
        self._few = asyncio.Semaphore(_AT_ONCE)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        async with self._few:
            with translate_errors(self.where):
                try:
                    yield
                except RedisError as error:
                    if is_read_only(error) and isinstance(self._client, Redis):
                        # It keeps its connections; the address may lead to another by now.
                        pool = self._client.connection_pool
                        await pool.disconnect(inuse_connections=False)
                    raise


@asynccontextmanager
async def connect(address: RedisAddress, password: Secret | None = None) -> AsyncIterator[Any]:
    """Open a client as long as the block lasts. Nothing has been asked yet."""
    unreadable = unreadable_file(address.files)
    if unreadable is not None:  # the client would take it for a server that is away
        raise StoreRefused(f"{address}: {unreadable}")
    options = {**_OPTIONS, "retry": Retry(NoBackoff(), _TRIES)}
    url = address.url
    if password is not None:
        url, user = address.without_user()
        options["credential_provider"] = _Credentials(user, password)
    client: Any
    try:
        if address.cluster:
            client = RedisCluster.from_url(url, **options)
        else:
            client = Redis.from_url(url, **options)
            if issubclass(client.connection_pool.connection_class, SSLConnection):
                client.connection_pool.connection_class = _TLSConnection
            client.connection_pool.make_connection()  # looks at options that it does not know
    except TypeError as error:
        text = f"{address}: the client does not know an option of the address ({error})"
        raise StoreRefused(text) from error
    except ValueError as error:
        raise StoreRefused(f"{address}: {error}") from error
    except OSError as error:  # it reads its own version from a file: no handle may be free
        raise StoreUnavailable(f"{address}: {error}") from error
    try:
        yield client
    finally:
        await client.aclose()


async def info(client: Any, address: RedisAddress) -> Info:
    """Ask a server about itself; in a cluster, the one that has the fleet's slot."""
    with translate_errors(str(address)):
        try:
            return dict(await _asked(client, address))
        except (NoConnection, RedisClusterException):
            await _listen_for_alert(address)
            raise


async def _asked(client: Any, address: RedisAddress) -> Any:
    if not address.cluster:
        return await client.info()
    await client.initialize()
    node = client.get_node_from_key(address.key("ownership"))
    assert node is not None, "a cluster that has answered has a node for each slot"
    return await client.info(target_nodes=node)


async def _listen_for_alert(address: RedisAddress) -> None:
    """Raise what a server has against the certificate of this client, if it is that.

    With TLS 1.3 it says so after the handshake, and closes. A command that is on its way then
    ends in a reset, which takes the server's words with it; so here nothing is sent.
    """
    pool: Any = Redis.from_url(address.url).connection_pool
    connection = pool.make_connection()
    if isinstance(connection, SSLConnection):
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_ALERT_WITHIN_S):
                reader, writer = await asyncio.open_connection(
                    connection.host, connection.port, ssl=connection.ssl_context.get()
                )
                with contextlib.closing(writer):
                    await reader.read(1)
