"""A host in an aiohttp program, beside routes of its own and under one address.

    python -m samples.embedding.aiohttp_program data/prices 8080

Each such process reads the whole feed into its own memory, as its leases are in its memory as
well: a start begins at the beginning. The endpoints of the host are under ``/changefeed``.
The program decides what a signal does: here, SIGTERM asks the host to stop, and Ctrl-C
cancels it, which is the same.
"""

import asyncio
import functools
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web

from changefeed import FeedSettings, Host, MemoryLeases, Settings, endpoints, open_host
from samples.embedding.prices import Prices


def make_app(newest: Mapping[str, float], host: Host) -> web.Application:
    async def price(request: web.Request) -> web.Response:
        article = request.match_info["article"]
        if article not in newest:
            raise web.HTTPNotFound
        return web.json_response({"article": article, "price": newest[article]})

    app = web.Application()
    app.add_routes([web.get("/prices/{article}", price)])
    app.add_subapp("/changefeed/", endpoints(host))
    return app


async def main(log: str, port: int) -> None:
    newest: dict[str, float] = {}
    settings = Settings(feed=FeedSettings(address=f"eventlog:{log}"))
    make = functools.partial(Prices, newest)
    async with open_host(settings, make, leases=MemoryLeases()) as host:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, host.stop)
        runner = web.AppRunner(make_app(newest, host))
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            await host.run()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], int(sys.argv[2])))
