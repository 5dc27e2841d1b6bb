"""A proxy before a server that loses an answer now and then, or everything for a while.

It cuts a connection after the server has answered and before the client hears of it, so
that a write has happened and the writer does not know. Where it is silent, packets are
dropped on the way: connections stay, new ones are taken, and nobody hears why.
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
        self._whole = asyncio.Event()
        self._whole.set()
        self.port = 0
        self.cuts = 0

    def cut_the_next_answer(self) -> None:
        """Lose the next answer, of whichever connection it is."""
        self._armed = True

    async def cut_again_and_again(self, every: float) -> None:
        while True:
            await asyncio.sleep(every)
            self.cut_the_next_answer()

    def lead_to(self, port: int) -> None:
        """Let connections that come lead to another server, as a name does after a failover."""
        self._target = port

    def fall_silent(self) -> None:
        self._whole.clear()

    def go_on(self) -> None:
        self._whole.set()

    async def serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        """Forward both ways until one of them ends."""
        await self._whole.wait()
        try:
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # it is away
            to_client.transport.abort()
            return
        ways = [
            asyncio.ensure_future(self._forward(client, to_server)),
            asyncio.ensure_future(self._forward(server, to_client, answers=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for writer in (to_client, to_server):
                writer.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _forward(
        self, source: StreamReader, target: StreamWriter, *, answers: bool = False
    ) -> None:
        while piece := await source.read(PIECE):
            await self._whole.wait()
            if answers and self._armed:
                self._armed = False
                self.cuts += 1
                return
            target.write(piece)
            await target.drain()


@asynccontextmanager
async def cutting(port: int) -> AsyncIterator[CuttingProxy]:
    """Serve as long as the block lasts."""
    proxy = CuttingProxy(port)
    async with serving(proxy.serve) as proxy.port:
        yield proxy
