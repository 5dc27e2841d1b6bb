"""What stands between hosts and a store that may not answer, or answers what none may."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.kinds import CHECKPOINTS, HOSTS, LEASES
from changefeed.stores.memory import MemoryStore
from changefeed.stores.store import BoundedStore, CallLimits, Record
from changefeed.testing.proxies import proxied

LEASE = Record(kind=LEASES, key="r0", body=b"{}", position="7")
TIMEOUT = 10.0


async def silent(_: str, __: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ({LEASES},)),
        ("get", (LEASES, "r0")),
        ("put", (LEASE,)),
        ("delete", (LEASES, "r0", "1")),
    ],
)
async def test_a_call_without_an_answer_is_given_up_in_time(
    name: str, arguments: tuple[Any, ...]
) -> None:
    asked: list[str] = []
    bounds = CallLimits(timeout=TIMEOUT, on_call=asked.append)
    store = BoundedStore(proxied(MemoryStore(), silent), bounds)
    async with asyncio.timeout(2 * TIMEOUT):
        with pytest.raises(StoreUnavailable, match=f"did not answer {name} within 10 s"):
            await getattr(store, name)(*arguments)
    assert asyncio.get_running_loop().time() == TIMEOUT
    assert asked == [name]


class Failing:
    """Goes around the calls of a store: those of these names fail."""

    def __init__(self, *names: str) -> None:
        self.names = names

    async def __call__(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name in self.names:
            raise StoreUnavailable("503")
        return await call()


@pytest.mark.parametrize(
    ("names", "failing"), [(("put",), True), (("get",), True), (("list", "delete"), False)]
)
async def test_leases_cannot_be_written_once_there_were_only_failures_for_an_expiration(
    names: tuple[str, ...], *, failing: bool
) -> None:
    around, said = Failing(*names), list[str]()
    bounds = CallLimits(
        timeout=TIMEOUT, expiration=30, when_failing=lambda error, _: said.append(str(error))
    )
    store = BoundedStore(proxied(MemoryStore(), around), bounds)
    healthy = BoundedStore(MemoryStore(), bounds)
    for n in range(8):
        with suppress(StoreUnavailable):
            await store.list({LEASES})
        with suppress(StoreUnavailable):
            await store.get(LEASES, "r0")
            await store.put(replace(LEASE, key=f"{n}"))
        for kind in (HOSTS, CHECKPOINTS):  # in another store, or no leases: they say nothing
            await healthy.put(Record(kind=kind, key=f"{n}", body=b"{}"))
        assert bounds.failing == (failing and n >= 6)
        await asyncio.sleep(5)
    assert said == ["503"] * failing
    around.names = ()
    assert await store.put(LEASE) is not None
    assert not bounds.failing


async def test_a_write_that_is_refused_says_nothing_of_whether_writes_get_through() -> None:
    around = Failing("put")
    bounds = CallLimits(timeout=TIMEOUT, expiration=30)
    store = BoundedStore(proxied(MemoryStore(), around), bounds)
    for n in range(8):
        around.names = ("put",) if n % 2 else ()
        stale = replace(LEASE, version="of nothing")
        if n % 2:
            with pytest.raises(StoreUnavailable):
                await store.put(stale)
        else:
            assert await store.put(stale) is None
        await asyncio.sleep(5)
    assert bounds.failing
    await asyncio.sleep(60)
    assert not bounds.failing  # it is worth a try again
