"""One call without an answer, of any kind, takes nothing from a host that lives."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet, Sections
from tests.support.looking import start
from tests.support.proxies import proxied
from tests.support.renewed_each import RenewedEach

TIGHT = {"renew_interval": 10.0, "fence_margin": 1.0, "call_timeout": 4.9}
"""With an expiration of 21 s: two renewals and the margin, and nothing more."""
SETTLED = 60.0
TIMES = 20


class Story:
    """Two hosts that share leases. What is asked of their container gets an answer, but for
    one call of a kind, now and then; ``apart``, heartbeats and listings are calls of their own.
    """

    def __init__(self, leases: MemoryLeases) -> None:
        self.leases = leases
        self.unanswered: str | None = None
        self.without_answer = 0
        container = proxied(self.leases, self._answer)
        settings: Sections = {"leases": {"expiration": 21.0}, "timing": TIGHT}
        self.fleet = Fleet(MemoryFeed(4), container, settings=settings)

    async def _answer(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == self.unanswered:
            self.unanswered = None
            self.without_answer += 1
            await asyncio.Event().wait()
        return await call()

    async def epochs(self) -> dict[str, int]:
        return {x.range_id: x.epoch for x in await self.leases.list()}

    @property
    def taken_for_dead(self) -> set[str]:
        hosts = self.fleet.hosts
        found = [x._coordinator for x in hosts.values()]
        return {x for y in found if y is not None for x in hosts.keys() - y.alive}


@pytest.mark.parametrize(
    ("leases", "call"),
    [
        (RenewedEach, "replace"),
        (RenewedEach, "checkpoint"),
        (RenewedEach, "list_fleet"),
        (MemoryLeases, "checkpoint"),
        (MemoryLeases, "list_fleet"),
    ],
)
async def test_a_call_without_an_answer_makes_no_host_look_dead(
    leases: type[MemoryLeases], call: str
) -> None:
    story = Story(leases())
    async with story.fleet as fleet:
        start(fleet, "ab")
        await asyncio.sleep(SETTLED)
        before = await story.epochs()
        for _ in range(TIMES):
            story.unanswered = call
            for n in range(50):
                fleet.append(f"key-{n}")
                await asyncio.sleep(1.0)
                assert not story.taken_for_dead
        assert story.without_answer == TIMES
        assert await story.epochs() == before
