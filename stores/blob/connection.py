"""A client for one container of blobs, made from an address and its secrets."""

import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob.aio import ContainerClient
from pydantic import ConfigDict, SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.secret import Secret
from changefeed.runtime.secret_settings import HasSecrets
from changefeed.stores.blob.address import BlobAddress
from changefeed.stores.blob.errors import check_answer, translate_errors

_OPTIONS: dict[str, Any] = {
    # Retries are the host's: it knows what became of the lease meanwhile.
    "retry_total": 0,
    "connection_timeout": 5,
    "read_timeout": 30,
    "user_agent": "changefeed-host",
}


class BlobSettings(HasSecrets):
    """``[backends.blob]``: better set in the environment than written into a file. Without any,
    an Azure identity opens the account."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    key: SecretStr | None = None
    """A key of the storage account, or a shared access signature."""
    connection_string: SecretStr | None = None
    """May say where the account is, for addresses like ``blob:///CONTAINER/PREFIX``."""


@asynccontextmanager
async def connect(address: BlobAddress, options: OpenOptions) -> AsyncIterator[ContainerClient]:
    """Open a client as long as the block lasts. Nothing has been asked yet."""
    given = options.settings if isinstance(options.settings, BlobSettings) else BlobSettings()
    async with AsyncExitStack() as stack:
        try:
            client = await _client(address, given, stack)
        except ValueError as error:
            raise StoreRefused(
                f"{address}: the client does not take the address or its secret ({error})"
            ) from error
        yield await stack.enter_async_context(client)


async def create_container(client: ContainerClient, address: BlobAddress) -> None:
    """Create the container if it is not there; looking needs less rights than creating."""
    with translate_errors(str(address)):
        if not await client.exists():
            with suppress(ResourceExistsError):
                await client.create_container()


async def _client(
    address: BlobAddress, given: BlobSettings, stack: AsyncExitStack
) -> ContainerClient:
    options = {**_OPTIONS, "raw_response_hook": partial(check_answer, str(address))}
    key, connection_string = given.secret_of("key"), given.secret_of("connection_string")
    if connection_string is not None:
        opener = _Opener(connection_string.within(_key_in))
        named = opener.of(
            ContainerClient.from_connection_string(
                connection_string.current(),
                address.container,
                credential=opener.signature,
                raw_request_hook=opener.renew,
                **options,
            )
        )
        # The address decides where leases are; the string opens it.
        if not address.endpoint or _account_url(named) == address.endpoint:
            return named
        raise StoreRefused(
            f"{address}: the connection string is for {_account_url(named)}; name the same "
            "account in both, or leave it out of the address (blob:///CONTAINER/PREFIX)"
        )
    if not address.endpoint:
        raise StoreRefused(
            "an address without an account needs CHANGEFEED_BACKENDS__BLOB__CONNECTION_STRING"
        )
    place = (address.endpoint, address.container)
    if key is None:
        identity = await stack.enter_async_context(_identity())
        return ContainerClient(*place, credential=identity, **options)
    opener = _Opener(key.within(_checked))
    credential: Any = opener.signature or opener.key
    return opener.of(
        ContainerClient(*place, credential=credential, raw_request_hook=opener.renew, **options)
    )


class _Opener:
    """A key of the account, or a shared access signature, as it is at each request.

    What it is at first, it stays: a client signs, or adds what was signed.
    """

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._credential: Any = None
        self.key = secret.current()
        self.signature = AzureSasCredential(self.key) if _is_signature(self.key) else None

    def of(self, client: ContainerClient) -> ContainerClient:
        self._credential = client.credential
        return client

    def renew(self, _: object) -> None:
        key = self._secret.current()
        if self.signature is not None and _is_signature(key):
            self.signature.update(key)
        elif self.signature is None and key and not _is_signature(key):
            self._credential.account_key = key


def _is_signature(key: str) -> bool:
    return "&" in key


def _checked(key: str) -> str:
    """Return a key or signature as the client takes it. Raise ``ValueError``."""
    if not _is_signature(key):
        base64.b64decode(key, validate=True)
    return key.removeprefix("?")


def _key_in(connection_string: str) -> str:
    """Return the key or signature in a connection string; none opens an emulator."""
    parts = (x.partition("=") for x in connection_string.split(";"))
    named = {name.strip().upper(): value.strip() for name, _, value in parts}
    return _checked(named.get("ACCOUNTKEY") or named.get("SHAREDACCESSSIGNATURE") or "")


def _account_url(client: ContainerClient) -> str:
    return str(client.primary_endpoint).rpartition("/")[0].rstrip("/")


@asynccontextmanager
async def _identity() -> AsyncIterator[Any]:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoreRefused(
            "there is no key (CHANGEFEED_BACKENDS__BLOB__KEY) and no connection string, and "
            "for an Azure identity a package is missing: pip install 'changefeed-host[azure]'"
        ) from error
    async with DefaultAzureCredential() as credential:
        yield credential
