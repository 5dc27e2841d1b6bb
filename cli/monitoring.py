"""A whole fleet over HTTP, also while no host runs.

    /         the page; see ``changefeed.host.page``
    /livez    200 as long as it answers
    /metrics  for Prometheus: lags, paused ranges, desired hosts
    /scale    how many hosts the fleet should have, for KEDA's metrics-api

It reads leases and feed as ``changefeed status`` does, and asks the members' endpoints for what
only they know. However often clients ask, it looks every few seconds at most; without clients
it looks every 30 s, to draw the last hour. If a look takes longer than a client waits, the
client gets the look before, with its age in seconds (``Age``).
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from changefeed.cli.existing import existing_fleet
from changefeed.cli.io.metrics import as_metrics
from changefeed.cli.serving import serve_until_stopped
from changefeed.feeds.feed import Feed
from changefeed.feeds.timeouts import bounded_feed
from changefeed.fleet.peers import Peers
from changefeed.fleet.watch import StatusWatch
from changefeed.host.page.access import Access, token_of
from changefeed.host.page.actions import ActionContext, ActionHandler
from changefeed.host.page.page import Page
from changefeed.host.page.state import PageSource, PageState
from changefeed.host.page.stream import EventStream
from changefeed.host.settings import Settings
from changefeed.host.web import listening_socket, url_of
from changefeed.host.wiring import find_observer
from changefeed.leases.container import LeaseContainer
from changefeed.runtime.errors import StoreError, UserError
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.shutdown import StopSignals
from changefeed.runtime.web_server import WebLimits, serving
from changefeed.stores.bounded import Bounds

_log = get_logger()
_PAGE_EVERY = 5.0
_SCRAPE_WITHIN, _SCALE_WITHIN = 8.0, 2.5
"""Prometheus waits for 10 s, KEDA for 3, unless set otherwise."""


def monitor(settings: Settings, *, actions: bool, lag_per_host: int) -> None:
    """Serve until a signal. Raise ``UserError`` for actions without a token."""
    if actions and token_of(settings.web) is None:
        raise UserError("--actions needs a token: set web.token, or web.token_file")
    set_up_logs(settings.log, ())
    serve_until_stopped(partial(_serve, settings, actions=actions, lag_per_host=lag_per_host))


async def _serve(
    settings: Settings, signals: StopSignals, *, actions: bool, lag_per_host: int
) -> None:
    async with (
        opened_monitor(settings, actions=actions, lag_per_host=lag_per_host) as app,
        AsyncExitStack() as stack,
    ):
        listening = stack.enter_context(listening_socket(settings.web))
        await stack.enter_async_context(serving(app, WebLimits(), listening))
        _log.info("web.listening", address=url_of(listening))
        await signals.wait()


@asynccontextmanager
async def opened_monitor(
    settings: Settings, *, actions: bool, lag_per_host: int
) -> AsyncIterator[web.Application]:
    """Open feed and leases, the latter to be written only if there are ``actions``."""
    async with (
        Peers.opened() as peers,
        existing_fleet(settings, peers, rates=True, acts=actions) as fleet,
        AsyncExitStack() as stack,
    ):
        watch = StatusWatch(fleet.look)
        stack.push_async_callback(watch.stop)
        stream = page_of(settings, watch, peers, acts=actions)
        bounds = Bounds(timeout=settings.leases.timing.call_timeout)
        acting = actions_of(settings, fleet.feed, fleet.container.bounded(bounds), acts=actions)
        await stack.enter_async_context(stream.looking())
        yield monitor_application(watch, stream, acting, lag_per_host=lag_per_host)


def page_of(
    settings: Settings, watch: StatusWatch, peers: Peers | None, *, acts: bool
) -> EventStream:
    source = PageSource(settings, peers, me="", acts=lambda: acts)

    async def look() -> PageState:
        return await source.state(
            await watch.look(max_age=_PAGE_EVERY), is_watched=stream.is_watched
        )

    stream = EventStream(look, every=_PAGE_EVERY)
    return stream


def actions_of(
    settings: Settings, feed: Feed | None, container: LeaseContainer, *, acts: bool
) -> ActionHandler:
    context = ActionContext(
        settings=settings,
        container=container,
        feed=feed and bounded_feed(feed),
        make_observer=partial(find_observer, settings.observer),
    )
    return ActionHandler(lambda: context, Access(lambda: token_of(settings.web), acts=acts))


def monitor_application(
    watch: StatusWatch, stream: EventStream, actions: ActionHandler, *, lag_per_host: int
) -> web.Application:
    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    async def metrics(_: web.Request) -> web.Response:
        seen = await watch.look(within=_SCRAPE_WITHIN)
        text = as_metrics(seen, lag_per_host=lag_per_host)
        headers = {"Content-Type": CONTENT_TYPE_LATEST, "Age": f"{watch.age:.0f}"}
        answer = web.Response(body=text.encode(), headers=headers)
        answer.enable_compression()
        return answer

    async def scale(_: web.Request) -> web.Response:
        seen = await watch.look(within=_SCALE_WITHIN)
        headers = {"Age": f"{watch.age:.0f}"}
        desired = seen.hosts_for(lag_per_host)
        return web.json_response({"desired_hosts": desired}, headers=headers)

    async def let_go(_: web.Application) -> None:
        stream.close()

    made = web.Application(middlewares=[_unavailable])
    ours = [web.get("/livez", alive), web.get("/metrics", metrics), web.get("/scale", scale)]
    made.add_routes([*ours, *actions.routes, *Page(stream).routes])
    made.on_shutdown.append(let_go)
    return made


@web.middleware
async def _unavailable(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except StoreError as error:
        return web.json_response({"error": str(error)}, status=503)
