"""A client for one container of blobs, made from an address and its secrets."""

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import ResourceExistsError
from azure.storage.blob.aio import ContainerClient
from pydantic import SecretStr

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
_KEY, _SIGNATURE = "ACCOUNTKEY", "SHAREDACCESSSIGNATURE"
_OF_STRING = (_KEY, _SIGNATURE, "ACCOUNTNAME", "BLOBENDPOINT")


class BlobSettings(HasSecrets):
    """``[backends.blob]``: better set in the environment than written into a file. Without any,
    an Azure identity opens the account."""

    key: SecretStr | None = None
    """A key of the storage account, a shared access signature, or a connection string, which
    may say where the account is, for addresses like ``blob:///CONTAINER/PREFIX``."""


@asynccontextmanager
async def connect(address: BlobAddress, options: OpenOptions) -> AsyncIterator[ContainerClient]:
    """Open a client as long as the block lasts. Nothing has been asked yet."""
    given = options.settings if isinstance(options.settings, BlobSettings) else BlobSettings()
    async with AsyncExitStack() as stack:
        try:
            client = await _client(address, given, stack)
        except ValueError as error:
            raise StoreRefused(
                f"{address}: check CHANGEFEED_BACKENDS__BLOB__KEY and the address ({error})"
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
    secret = given.secret_of("key")
    is_string = secret is not None and bool(_named(secret.current()))
    if not address.endpoint and not is_string:
        raise StoreRefused(
            "an address without an account needs a connection string: set "
            "CHANGEFEED_BACKENDS__BLOB__KEY to one"
        )
    place = (address.endpoint, address.container)
    if secret is None:
        identity = await stack.enter_async_context(_identity())
        return ContainerClient(*place, credential=identity, **options)
    opener = _Opener(secret.within(_key_in))
    options["raw_request_hook"] = opener.renew
    if not is_string:
        credential: Any = opener.signature or opener.key
        return opener.of(ContainerClient(*place, credential=credential, **options))
    named = opener.of(
        ContainerClient.from_connection_string(
            secret.current(), address.container, credential=opener.signature, **options
        )
    )
    # The address decides where leases are; the string opens it.
    if not address.endpoint or _account_url(named) == address.endpoint:
        return named
    raise StoreRefused(
        f"{address}: the connection string is for {_account_url(named)}; name the same "
        "account in both, or leave it out of the address (blob:///CONTAINER/PREFIX)"
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


def _named(secret: str) -> Mapping[str, str]:
    """Return the parts of a connection string by their names; none, of a key or signature."""
    parts = (x.partition("=") for x in secret.split(";"))
    named = {name.strip().upper(): value.strip() for name, _, value in parts}
    return {} if named.keys().isdisjoint(_OF_STRING) else named


def _key_in(secret: str) -> str:
    """Return a key or signature as the client takes it, also from a connection string, which
    has none for an emulator. Raise ``ValueError``.
    """
    named = _named(secret)
    key = named.get(_KEY) or named.get(_SIGNATURE) or "" if named else secret
    if not _is_signature(key):
        base64.b64decode(key, validate=True)
    return key.removeprefix("?")


def _account_url(client: ContainerClient) -> str:
    return str(client.primary_endpoint).rpartition("/")[0].rstrip("/")


@asynccontextmanager
async def _identity() -> AsyncIterator[Any]:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise StoreRefused(
            "there is no key (CHANGEFEED_BACKENDS__BLOB__KEY), and for an Azure identity a "
            "package is missing: pip install 'changefeed-host[azure]'"
        ) from error
    async with DefaultAzureCredential() as credential:
        yield credential
