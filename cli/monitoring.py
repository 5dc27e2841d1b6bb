"""A whole fleet over HTTP, also while no host runs.

    /         the page; see ``changefeed.host.page``
    /livez    200 as long as it answers
    /metrics  for Prometheus: lags, paused ranges, desired hosts
    /scale    how many hosts the fleet should have, for KEDA's metrics-api

Where there are several processors, each has a page at ``/processors/NAME/``, and ``/`` leads to
the first. Metrics have their names, and lack one whose leases do not answer. ``/scale`` is for
all, since a host reads for each of them: it answers 503 while one does not answer.

It reads leases and feed as ``changefeed status`` does, and asks the members' endpoints for what
only they know. However often clients ask, it looks every few seconds at most; without clients
it looks every 30 s, to draw the last hour. If a look takes longer than a client waits, the
client gets the look before, with its age in seconds (``Age``).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from aiohttp import web
from msgspec.structs import replace
from prometheus_client import CONTENT_TYPE_LATEST

from changefeed.cli.existing_leases import existing_fleet
from changefeed.cli.io.metrics import as_metrics
from changefeed.cli.serving import serve_until_stopped
from changefeed.feeds.feed import BoundedFeed, Feed
from changefeed.fleet.peers import Peers
from changefeed.fleet.status import FleetStatus, desired_hosts
from changefeed.fleet.watch import StatusWatch
from changefeed.host.page.access import Access
from changefeed.host.page.actions import ActionContext, ActionHandler
from changefeed.host.page.page import Page
from changefeed.host.page.state import PageSource, PageState
from changefeed.host.page.stream import EventStream
from changefeed.host.settings import Settings, settings_of_process
from changefeed.host.web import listening_socket, url_of
from changefeed.host.wiring import find_observer
from changefeed.leases.container import LeaseContainer
from changefeed.runtime.errors import StoreError, StoreUnavailable, UserError
from changefeed.runtime.linked_tasks import naming
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.processor_paths import mount_processors
from changefeed.runtime.shutdown import StopSignals
from changefeed.runtime.web_server import WebLimits, serving
from changefeed.stores.store import CallLimits

_log = get_logger()
_PAGE_EVERY = 5.0
_SCRAPE_WITHIN, _SCALE_WITHIN = 8.0, 2.5
"""Prometheus waits for 10 s, KEDA for 3, unless set otherwise."""


@dataclass(frozen=True, kw_only=True)
class MonitoredFleet:
    """What is looked at, shown and done for one fleet."""

    watch: StatusWatch
    stream: EventStream
    actions: ActionHandler


def monitor(processors: Mapping[str, Settings], *, actions: bool, lag_per_host: int) -> None:
    """Serve until a signal. Raise ``UserError`` for actions without a token."""
    settings = settings_of_process(processors)
    if actions and settings.web.secret is None:
        raise UserError("--actions needs a token: set web.token, or web.token_file")
    set_up_logs(settings.log, ())
    serve_until_stopped(partial(_serve, processors, actions=actions, lag_per_host=lag_per_host))


async def _serve(
    processors: Mapping[str, Settings],
    signals: StopSignals,
    *,
    actions: bool,
    lag_per_host: int,
) -> None:
    async with (
        opened_monitor(processors, actions=actions, lag_per_host=lag_per_host) as app,
        AsyncExitStack() as stack,
    ):
        listening = stack.enter_context(listening_socket(settings_of_process(processors).web))
        await stack.enter_async_context(serving(app, WebLimits(), listening))
        _log.info("web.listening", address=url_of(listening))
        await signals.wait()


@asynccontextmanager
async def opened_monitor(
    processors: Mapping[str, Settings], *, actions: bool, lag_per_host: int
) -> AsyncIterator[web.Application]:
    """Open the feed and the leases of each, the latter to be written only if there are
    ``actions``.
    """
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(Peers.opened())
        fleets = {
            name: await stack.enter_async_context(
                _opened_fleet(name, processors, peers, acts=actions)
            )
            for name in processors
        }
        yield monitor_application(fleets, lag_per_host=lag_per_host)


@asynccontextmanager
async def _opened_fleet(
    name: str, processors: Mapping[str, Settings], peers: Peers, *, acts: bool
) -> AsyncIterator[MonitoredFleet]:
    settings = processors[name]
    async with AsyncExitStack() as stack:
        with naming(name):
            fleet = await stack.enter_async_context(
                existing_fleet(settings, peers, rates=True, acts=acts)
            )
        watch = StatusWatch(fleet.look)
        stack.push_async_callback(watch.stop)
        bounds = CallLimits(timeout=settings.leases.timing.call_timeout)
        container = fleet.container.bounded(bounds)
        made = monitored(
            name, processors, watch, container, feed=fleet.feed, peers=peers, acts=acts
        )
        await stack.enter_async_context(made.stream.looking())
        yield made


def monitored(
    name: str,
    processors: Mapping[str, Settings],
    watch: StatusWatch,
    container: LeaseContainer,
    *,
    feed: Feed | None = None,
    peers: Peers | None = None,
    acts: bool = False,
) -> MonitoredFleet:
    """Return what is served of the processor ``name``: its page links to the others."""
    settings = processors[name]
    source = PageSource(settings, peers, me="", acts=lambda: acts)

    async def look() -> PageState:
        status = await watch.look(max_age=_PAGE_EVERY)
        state = await source.state(status, is_watched=stream.is_watched)
        return replace(state, processor=name, processors=[*filter(None, processors)])

    stream = EventStream(look, every=_PAGE_EVERY)
    context = ActionContext(
        settings=settings,
        listing_every=settings.leases.timing.balance_interval,
        container=container,
        feed=feed and BoundedFeed(feed),
        make_observer=partial(find_observer, settings.observer),
    )
    access = Access(lambda: settings.web.secret, acts=acts)
    actions = ActionHandler(lambda: context, access)
    return MonitoredFleet(watch=watch, stream=stream, actions=actions)


def monitor_application(
    fleets: Mapping[str, MonitoredFleet], *, lag_per_host: int
) -> web.Application:
    """Serve all fleets, by the names of their processors: the only one may have none."""

    async def alive(_: web.Request) -> web.Response:
        return web.json_response({"alive": True})

    def age() -> dict[str, str]:
        return {"Age": f"{max(x.watch.age for x in fleets.values()):.0f}"}

    async def metrics(_: web.Request) -> web.Response:
        seen, silent = await _looked(fleets, _SCRAPE_WITHIN)
        if not seen:
            raise StoreUnavailable(silent)
        text = as_metrics(seen, lag_per_host=lag_per_host)
        headers = {"Content-Type": CONTENT_TYPE_LATEST, **age()}
        answer = web.Response(body=text.encode(), headers=headers)
        answer.enable_compression()
        return answer

    async def scale(_: web.Request) -> web.Response:
        seen, silent = await _looked(fleets, _SCALE_WITHIN)
        if silent:  # hosts that are not asked for would go
            raise StoreUnavailable(silent)
        desired = desired_hosts(seen.values(), lag_per_host)
        return web.json_response({"desired_hosts": desired}, headers=age())

    async def let_go(_: web.Application) -> None:
        for x in fleets.values():
            x.stream.close()

    made = web.Application(middlewares=[_unavailable])
    made.add_routes(
        [web.get("/livez", alive), web.get("/metrics", metrics), web.get("/scale", scale)]
    )
    if only := fleets.get(""):
        made.add_routes(_routes(only))
    else:
        mount_processors(made, {name: _page_of(x) for name, x in fleets.items()})
    made.on_shutdown.append(let_go)
    return made


async def _looked(
    fleets: Mapping[str, MonitoredFleet], within: float
) -> tuple[Mapping[str, FleetStatus], str]:
    """Return what was seen, and why of some nothing was: the empty text if all was."""
    seen, silent = dict[str, FleetStatus](), list[str]()

    async def look(name: str, watch: StatusWatch) -> None:
        try:
            seen[name] = await watch.look(within=within)
        except StoreError as error:
            silent.append(f"{name}: {error}" if name else str(error))

    await asyncio.gather(*(look(name, x.watch) for name, x in fleets.items()))
    return seen, "; ".join(silent)


def _page_of(fleet: MonitoredFleet) -> web.Application:
    made = web.Application()
    made.add_routes(_routes(fleet))
    return made


def _routes(fleet: MonitoredFleet) -> Sequence[web.RouteDef]:
    return [*fleet.actions.routes, *Page(fleet.stream).routes]


@web.middleware
async def _unavailable(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except StoreError as error:
        return web.json_response({"error": str(error)}, status=503)
