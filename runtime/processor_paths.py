"""What a process serves for each of its processors by their names: a host, or the monitor."""

from collections.abc import Mapping

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware
from structlog.contextvars import bound_contextvars

from changefeed.runtime.linked_tasks import path_of


def mount_processors(app: web.Application, served: Mapping[str, web.Application]) -> None:
    """Serve what each processor has under its path; ``/`` leads to the first.

    What is logged on the way has the ``processor``.
    """
    first = path_of(next(iter(served))).removeprefix("/")  # we may be mounted anywhere

    async def show_first(_: web.Request) -> web.Response:
        return web.Response(
            status=web.HTTPFound.status_code, headers={hdrs.LOCATION: f"{first}/"}
        )

    app.router.add_get("/", show_first)
    for name, x in served.items():
        x.middlewares.append(_naming(name))
        app.add_subapp(path_of(name), x)


def _naming(processor: str) -> Middleware:
    @web.middleware
    async def name_processor(request: web.Request, handler: Handler) -> web.StreamResponse:
        with bound_contextvars(processor=processor):
            return await handler(request)

    return name_processor
