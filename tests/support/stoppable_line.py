"""A line to a server that can be cut: it lies between one client and a port."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.support.serving import PIECE, serving


class StoppableLine:
    """Passes on what comes, until ``cut``: then nothing does, and nobody hears why.

    As where packets are dropped on the way: connections stay, and new ones are taken.
    """

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._whole = asyncio.Event()
        self._whole.set()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    async def serve(self, client: StreamReader, to_client: StreamWriter) -> None:
        await self._whole.wait()
        with suppress(OSError):
            server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(client, to_server))
                    both.create_task(self._pass_on(server, to_client))
            except* OSError:
                pass
            finally:
                to_server.transport.abort()
        to_client.transport.abort()

    async def _pass_on(self, source: StreamReader, target: StreamWriter) -> None:
        while piece := await source.read(PIECE):
            await self._whole.wait()
            target.write(piece)
            await target.drain()
        target.close()


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[StoppableLine]:
    """Serve as long as the block lasts."""
    line = StoppableLine(port)
    async with serving(line.serve) as line.port:
        yield line
