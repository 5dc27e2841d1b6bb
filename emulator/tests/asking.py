"""Clients that merge what several ranges of a container answer, as tests ask them."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import pytest
from azure.cosmos import CosmosClient, aio

from cosmos_emulator.testing import Account

_LIMIT = 7  # small pages: a query goes over several of each range


class Ask(Protocol):
    """Gives what a client makes of a query of a container."""

    def __call__(
        self, name: str, text: str, parameters: Sequence[dict[str, Any]] = ()
    ) -> list[Any]: ...


@contextmanager
def _blocking(account: Account) -> Iterator[Ask]:
    with CosmosClient(account.url, account.key) as client:
        database = client.get_database_client("d")

        def ask(name: str, text: str, parameters: Sequence[dict[str, Any]] = ()) -> list[Any]:
            found = database.get_container_client(name).query_items(
                text,
                parameters=[*parameters],
                enable_cross_partition_query=True,
                max_item_count=_LIMIT,
            )
            return [*found]

        yield ask


@contextmanager
def _asynchronous(account: Account) -> Iterator[Ask]:
    async def opened() -> aio.CosmosClient:
        return aio.CosmosClient(account.url, account.key)

    async def found(name: str, text: str, parameters: Sequence[dict[str, Any]]) -> list[Any]:
        asked = client.get_database_client("d").get_container_client(name)
        items = asked.query_items(text, parameters=[*parameters], max_item_count=_LIMIT)
        return [x async for x in items]

    with asyncio.Runner() as runner:
        client = runner.run(opened())
        yield lambda name, text, parameters=(): runner.run(found(name, text, parameters))
        runner.run(client.close())


Opened = Callable[[Account], AbstractContextManager[Ask]]
CLIENTS: Final = [
    pytest.param(_blocking, id="blocking"),
    pytest.param(_asynchronous, id="asynchronous", marks=pytest.mark.nightly),
]
