"""Proxies stand in for what is behind them, for protocols, too."""

from collections.abc import Awaitable, Callable
from inspect import getattr_static
from typing import Any

from changefeed.leases.memory import MemoryLeases
from changefeed.testing.proxies import proxied


async def straight(_: str, call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


async def test_protocols_find_the_methods_behind_a_proxy_of_a_proxy() -> None:
    leases = proxied(proxied(MemoryLeases(), straight), straight)
    # As isinstance does it from Python 3.12 on.
    assert callable(getattr_static(leases, "list_fleet"))
    assert await leases.list() == []
