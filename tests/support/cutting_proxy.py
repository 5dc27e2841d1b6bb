"""A proxy before a server that sometimes lets a request through and loses the answer.

It cuts a connection after the server has answered and before the client hears of it, so
that a write has happened and the writer does not know.
"""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.serving import PIECE, serving


class CuttingProxy:
    """Forwards what is sent to ``port``. ``cuts`` counts the answers that were lost."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._armed = False
        self.port = 0
        self.cuts = 0

    def cut_the_next_answer(self) -> None:
        """Lose the next answer, of whichever connection it is."""
        self._armed = True

    async def cut_again_and_again(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            self.cut_the_next_answer()

    async def serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        """Forward both ways until one of them ends."""
        server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.ensure_future(_forward(client, to_server)),
            asyncio.ensure_future(self._answer(server, to_client)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for writer in (to_client, to_server):
                writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _answer(self, server: StreamReader, to_client: StreamWriter) -> None:
        while piece := await server.read(PIECE):
            if self._armed:
                self._armed = False
                self.cuts += 1
                return
            to_client.write(piece)
            await to_client.drain()


async def _forward(client: StreamReader, to_server: StreamWriter) -> None:
    while piece := await client.read(PIECE):
        to_server.write(piece)
        await to_server.drain()


@asynccontextmanager
async def cutting(port: int) -> AsyncIterator[CuttingProxy]:
    """Serve as long as the block lasts."""
    proxy = CuttingProxy(port)
    async with serving(proxy.serve) as proxy.port:
        yield proxy
