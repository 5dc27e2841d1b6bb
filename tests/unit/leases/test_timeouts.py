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
ANY, SOON = 60.0, 10.0
"""How long any call may take, and one that an owner waits for between two signs of life."""


async def silent(_: str, __: Callable[[], Awaitable[Any]]) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("name", "arguments", "within"),
    [
        ("list", (), ANY),
        ("list_fleet", ("", None), ANY),
        ("list_fleet", ("", MEMBER), SOON),
        ("read", (LEASE.range_id,), SOON),
        ("create", (LEASE,), ANY),
        ("replace", (LEASE,), SOON),
        ("acquire", (LEASE,), ANY),
        ("checkpoint", (LEASE,), SOON),
        ("delete", (LEASE,), ANY),
        ("members", (), ANY),
        ("put_member", (MEMBER,), SOON),
        ("remove_member", (MEMBER,), ANY),
    ],
)
async def test_a_call_without_an_answer_is_given_up_in_time(
    name: str, arguments: tuple[Any, ...], within: float
) -> None:
    leases = BoundedContainer(
        proxied(MemoryLeases(), silent),
        timeout=ANY,
        renewal_timeout=SOON,
        on_call=lambda _: None,
    )
    async with asyncio.timeout(2 * ANY):
        with pytest.raises(StoreUnavailable, match=f"did not answer .* within {within:g} s"):
            await getattr(leases, name)(*arguments)
    assert asyncio.get_running_loop().time() == within
