"""A host in a FastAPI program: it starts and stops with the application's lifespan.

    PRICES_LOG=data/prices uvicorn --factory samples.embedding.fastapi_program:make_app

Each such process reads the whole feed into its own memory, as its leases are in its memory as
well: a start begins at the beginning. The endpoints of the host are under ``/changefeed``;
let an orchestrator ask ``/changefeed/readyz``, which also says if the host has stopped.
"""

import asyncio
import functools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException

from changefeed import FeedSettings, MemoryLeases, Settings, asgi_endpoints, open_host
from samples.embedding.prices import Prices


def make_app() -> FastAPI:
    newest: dict[str, float] = {}
    settings = Settings(feed=FeedSettings(address=f"eventlog:{os.environ['PRICES_LOG']}"))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        make = functools.partial(Prices, newest)
        async with open_host(settings, make, leases=MemoryLeases()) as host:
            app.mount("/changefeed", asgi_endpoints(host))
            running = asyncio.create_task(host.run())
            yield
            host.stop()
            await running  # raises what the host failed of, if it did

    app = FastAPI(lifespan=lifespan)

    @app.get("/prices/{article}")
    async def price(article: str) -> dict[str, str | float]:
        if article not in newest:
            raise HTTPException(404)
        return {"article": article, "price": newest[article]}

    return app
