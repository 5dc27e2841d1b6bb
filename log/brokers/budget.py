"""Bytes that requests may take of a broker's memory at once.

The broker counts a request by its length, before it reads any of the body. So the bodies of
all clients together fit. A request that does not fit gets 429, and the client sends it again.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


class Budget:
    """``used`` of ``most`` bytes are taken. One request alone may take more than there is."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Take so many bytes until the block is left, or refuse the request."""
        if self.used and self.used + size > self.most:
            raise web.HTTPTooManyRequests(
                text=f"this broker holds {self.used:,} bytes of requests, and may hold "
                f"{self.most:,} (writing.buffer_bytes): send it again a little later"
            )
        assert size >= 0, f"a request has {size} bytes"
        self.used += size
        try:
            yield
        finally:
            self.used -= size
            assert self.used >= 0, f"a request gave back {-self.used} bytes more than it took"
