"""Commands that ask the brokers of a collection: one client for each call."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import FORM, PLAIN, TLS, parse_address
from changefeed.log.client.client import BrokerClient
from changefeed.runtime.errors import UserError

T = TypeVar("T")


def is_on_brokers(address: str) -> bool:
    return address.partition(":")[0] in (PLAIN, TLS)


def client_of(address: str) -> AbstractAsyncContextManager[BrokerClient]:
    """Raise ``UserError``, with the form there is, for what is no collection of a cluster."""
    scheme, _, place = address.partition(":")
    if not is_on_brokers(address):
        raise UserError(f"{address!r} is not a collection of a cluster: give {PLAIN}:{FORM}")
    return BrokerClient.open(parse_address(scheme, place), BrokerAccess.of_environment())


def on_brokers(address: str, act: Callable[[BrokerClient], Awaitable[T]]) -> T:
    """Run something with a client of the brokers at an address."""

    async def run() -> T:
        async with client_of(address) as client:
            return await act(client)

    return asyncio.run(run())
