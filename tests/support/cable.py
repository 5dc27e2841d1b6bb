"""What lies between a host and its lease container, until it is pulled out."""

from collections.abc import Awaitable, Callable
from typing import Any

from changefeed.runtime.errors import StoreUnavailable


class Cable:
    """Goes around the calls of a ``proxied`` container; while ``out``, none arrives."""

    def __init__(self) -> None:
        self.out = False

    async def __call__(self, _: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self.out:
            raise StoreUnavailable("no route to the container")
        return await call()
