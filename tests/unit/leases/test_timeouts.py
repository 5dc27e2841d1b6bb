"""What stands between hosts and a lease container that may not answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timeouts import BoundedContainer
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make
from tests.support.proxies import proxied

LEASE = make.lease(at="0")
MEMBER = make.member("a")
WITHIN = 10.0
"""How long any call may take, and one that an owner waits for between two signs of life."""


async def silent(_: str, __: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("list", ()),
        ("list_fleet", ("", None)),
        ("list_fleet", ("", MEMBER)),
        ("read", (LEASE.range_id,)),
        ("create", (LEASE,)),
        ("replace", (LEASE,)),
        ("acquire", (LEASE,)),
        ("checkpoint", (LEASE,)),
        ("delete", (LEASE,)),
        ("members", ()),
        ("put_member", (MEMBER,)),
        ("remove_member", (MEMBER,)),
    ],
)
async def test_a_call_without_an_answer_is_given_up_in_time(
    name: str, arguments: tuple[Any, ...]
) -> None:
    leases = BoundedContainer(
        proxied(MemoryLeases(), silent),
        timeout=WITHIN,
        on_call=lambda _: None,
    )
    async with asyncio.timeout(2 * WITHIN):
        with pytest.raises(StoreUnavailable, match=f"did not answer .* within {WITHIN:g} s"):
            await getattr(leases, name)(*arguments)
    assert asyncio.get_running_loop().time() == WITHIN
