"""The same call for many things, by ``together``: how many at once, and in which order."""

import asyncio

from changefeed.runtime.for_each import for_each


class Calls:
    """Calls that take ``n`` seconds, and fail where asked to."""

    def __init__(self, *, failing: int | None = None) -> None:
        self._failing = failing
        self.begun: list[int] = []
        self.running = 0
        self.most = 0

    async def take(self, n: int) -> str:
        self.begun.append(n)
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(n)
        self.running -= 1
        if n == self._failing:
            raise KeyError(n)
        return f"took {n}"


async def test_no_more_run_at_once_than_asked_for() -> None:
    calls = Calls()
    await for_each(range(1, 20), calls.take, at_once=4)
    assert calls.most == 4
