"""A client for one account, made from an address and its secrets."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from azure.cosmos.aio import CosmosClient

from changefeed.feeds.cosmos.address import (
    Account,
    AddressWrong,
    CosmosAccess,
    CosmosAddress,
    account_of,
    is_this_machine,
    read_address,
)
from changefeed.leases.cosmos.errors import translate_errors
from changefeed.leases.errors import ContainerRefused

OPTIONS: dict[str, Any] = {
    # Retries are the host's: it knows what became of the lease meanwhile. The client
    # multiplies its own ((n+1)² requests for a 429 that lasts), and 0 means its default.
    "retry_total": 1,
    "retry_throttle_total": 1,
    "retry_backoff_max": 1,
    "connection_timeout": 5,
    "read_timeout": 30,
    "user_agent_suffix": "changefeed-host",
}


def lease_address(scheme: str, place: str, options: tuple[str, ...]) -> CosmosAddress:
    """Read the address of a lease container. Raise ``ContainerRefused`` with advice."""
    try:
        return read_address(scheme, place, known=options)
    except AddressWrong as error:
        raise ContainerRefused(str(error)) from error


@asynccontextmanager
async def connect(
    address: CosmosAddress, access: CosmosAccess
) -> AsyncIterator[tuple[CosmosClient, Account]]:
    """Open a client as long as the block lasts; it has spoken to the account by then."""
    try:
        account = account_of(address, access)
    except AddressWrong as error:
        raise ContainerRefused(str(error)) from error
    async with AsyncExitStack() as stack:
        credential: Any = account.key or await stack.enter_async_context(_identity())
        client = CosmosClient(
            account.endpoint,
            credential,
            # An emulator has one region, and may not know by which address it is reached.
            enable_endpoint_discovery=not is_this_machine(account.host),
            **OPTIONS,
        )
        with translate_errors(account.endpoint):
            try:
                await stack.enter_async_context(client)
            except BaseException:
                # It fails half open, with sessions that nobody else would close.
                await client.close()
                raise
        yield client, account


@asynccontextmanager
async def _identity() -> AsyncIterator[Any]:
    try:
        from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ContainerRefused(
            "there is no key (CHANGEFEED_COSMOS__KEY) and no connection string, and for an "
            "Azure identity a package is missing: pip install 'changefeed-host[azure]'"
        ) from error
    async with DefaultAzureCredential() as credential:
        yield credential
