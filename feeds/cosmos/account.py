"""Opening the client of an account: by its key, or by the identity of this process."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from azure.cosmos.aio import CosmosClient

from changefeed.feeds.cosmos.address import Account
from changefeed.feeds.errors import FeedRefused


@asynccontextmanager
async def opened(account: Account) -> AsyncIterator[CosmosClient]:
    """Yield a client. Nothing is asked yet but the account itself."""
    async with AsyncExitStack() as stack:
        credential: Any = account.key
        if credential is None:
            credential = await stack.enter_async_context(_identity(account))
        # TLS is verified by the client, but for endpoints on this machine.
        client = CosmosClient(account.endpoint, credential, user_agent_suffix="changefeed-host")
        stack.push_async_exit(client)  # before it is entered: it leaves a session open if
        await client.__aenter__()  # the account does not answer
        yield client


def _identity(account: Account) -> Any:
    try:
        from azure.identity.aio import (  # noqa: PLC0415 - an extra, for those who use it
            DefaultAzureCredential,
        )
    except ImportError as error:
        raise FeedRefused(
            f"there is no key for {account.endpoint}: set CHANGEFEED_COSMOS__KEY or "
            f"CHANGEFEED_COSMOS__CONNECTION_STRING, or install changefeed-host[azure] to use "
            f"the identity of this process"
        ) from error
    return DefaultAzureCredential()
