"""A proxy before a server that counts the bytes of both ways, and the calls.

A call is what a client sends until the server answers: right for clients that have no two
calls under way on one connection.
"""

import asyncio
import contextlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.serving import PIECE, serving

Pair = tuple[StreamReader, StreamWriter]


class Counted:
    def __init__(self) -> None:
        self.bytes = 0
        self.calls = 0
        self.port = 0

    async def serve(self, client: Pair, server: Pair) -> None:
        """Pass on what comes from either side of one connection until both have ended."""
        asking = False

        def asked() -> None:
            nonlocal asking
            self.calls += not asking
            asking = True

        def answered() -> None:
            nonlocal asking
            asking = False

        await asyncio.gather(
            self._forward(client[0], server[1], asked),
            self._forward(server[0], client[1], answered),
        )

    async def _forward(
        self, source: StreamReader, target: StreamWriter, came: Callable[[], None]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await source.read(PIECE):
                came()
                self.bytes += len(piece)
                target.write(piece)
                await target.drain()
        target.close()


@asynccontextmanager
async def counting(port: int) -> AsyncIterator[Counted]:
    """Serve as long as the block lasts."""
    counted = Counted()

    async def serve(client: StreamReader, to_client: StreamWriter) -> None:
        server = await asyncio.open_connection("127.0.0.1", port)
        await counted.serve((client, to_client), server)

    async with serving(serve) as counted.port:
        yield counted
