"""What goes around the calls of a ``proxied`` object: it counts, delays and fails them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from changefeed.runtime.errors import StoreUnavailable

NEVER = 1e9


class Calls:
    """Each mapping is by the name of a call, and may be changed while a story goes on.

    ``lasting`` are seconds before a call has its effect, ``answered_after`` those before its
    answer comes, ``first`` is what others do before it, and ``failing`` what it raises. While
    ``out``, no call arrives.
    """

    def __init__(
        self,
        *,
        lasting: Mapping[str, float] | None = None,
        answered_after: Mapping[str, float] | None = None,
        first: Mapping[str, Callable[[], Awaitable[object]]] | None = None,
    ) -> None:
        self.count: Counter[str] = Counter()
        self.lasting = dict(lasting or {})
        self.answered_after = dict(answered_after or {})
        self.failing: dict[str, Exception] = {}
        self.out = False
        self._first = dict(first or {})

    async def __call__(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        self.count[name] += 1
        if self.out:
            raise StoreUnavailable("no route to the container")
        if name in self._first:
            await self._first[name]()
        if name in self.lasting:
            await asyncio.sleep(self.lasting[name])
        if name in self.failing:
            raise self.failing[name]
        answer = await call()
        if name in self.answered_after:
            await asyncio.sleep(self.answered_after[name])
        return answer

    async def within(self, seconds: float) -> Counter[str]:
        """Return how often what is called in so many seconds."""
        self.count.clear()
        await asyncio.sleep(seconds)
        return self.count
