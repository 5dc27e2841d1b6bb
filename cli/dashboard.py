"""``changefeed dashboard``: the page of a whole fleet, served by a process of its own.

    /         the page; see ``changefeed.host.page``
    /livez    200 as long as it answers

It reads leases and feed as ``changefeed status`` does, and asks the members' endpoints for
what only they know: hosts need not run. Without watchers it looks each half a minute,
for the picture of the last hour.
"""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer
from aiohttp import web

from changefeed.cli.existing import existing_fleet, existing_leases
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import ObserverFlags, with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.serving import serve_until_stopped
from changefeed.feeds.feed import Feed
from changefeed.feeds.timeouts import bounded_feed
from changefeed.fleet.peers import Peers
from changefeed.fleet.watch import FleetWatch
from changefeed.host.page.access import Access, token_of
from changefeed.host.page.actions import ActionContext, ActionHandler
from changefeed.host.page.page import Page, json_answer
from changefeed.host.page.state import PageSource, PageState
from changefeed.host.page.stream import EventStream
from changefeed.host.settings import Settings
from changefeed.host.web import listening_socket, serving_application, url_of
from changefeed.host.wiring import find_observer
from changefeed.leases.container import LeaseContainer
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.shutdown import StopSignals

_log = get_logger()


@dataclass(frozen=True, kw_only=True)
class DashboardFlags(FeedFlags, ObserverFlags):
    """Those of a look at a fleet, and the observer that letters are replayed to."""


@with_flags
def dashboard(
    flags: DashboardFlags,
    *,
    actions: Annotated[
        bool,
        typer.Option("--actions", help="Let those act who have web.token; else look only."),
    ] = False,
    every: Annotated[
        float,
        typer.Option("--every", min=0.5, max=3600.0, help="Seconds between two looks."),
    ] = 5.0,
) -> None:
    """Serve a page that shows a fleet: hosts, ranges, lineage, moves, dead letters.

    It listens where web.bind and web.port say, and runs until SIGTERM or Ctrl-C.
    """
    with exit_on_error():
        settings = flags.settings()
        if actions and token_of(settings.web) is None:
            raise UserError("--actions needs a token: set web.token, or web.token_file")
        set_up_logs(settings.log, ())
        serve_until_stopped(partial(_serve, settings, actions=actions, every=every))


async def _serve(
    settings: Settings, signals: StopSignals, *, actions: bool, every: float
) -> None:
    async with AsyncExitStack() as stack:
        peers = await stack.enter_async_context(Peers.opened())
        fleet = await stack.enter_async_context(existing_fleet(settings, peers, rates=True))
        container = await stack.enter_async_context(existing_leases(settings))
        listening = stack.enter_context(listening_socket(settings.web))
        desk = desk_of(settings, fleet.feed, container, acts=actions)
        stream = stream_of(settings, FleetWatch(fleet.look), peers, acts=actions, every=every)
        app = dashboard_application(stream, desk)
        await stack.enter_async_context(stream.looking())
        await stack.enter_async_context(serving_application(listening, app))
        _log.info("web.listening", address=url_of(listening))
        await signals.wait()


def stream_of(
    settings: Settings, watch: FleetWatch, peers: Peers, *, acts: bool, every: float
) -> EventStream:
    source = PageSource(settings, peers, me="", acts=lambda: acts)

    async def look() -> PageState:
        return await source.state(await watch.look(max_age=every))

    return EventStream(look, every=every)


def desk_of(
    settings: Settings, feed: Feed | None, container: LeaseContainer, *, acts: bool
) -> ActionHandler:
    tools = ActionContext(
        settings=settings,
        container=container,
        feed=feed and bounded_feed(feed, timeout=settings.feed.read_timeout),
        make_observer=partial(find_observer, settings.observer),
    )
    return ActionHandler(lambda: tools, Access(lambda: token_of(settings.web), acts=acts))


def dashboard_application(stream: EventStream, desk: ActionHandler) -> web.Application:
    async def alive(_: web.Request) -> web.Response:
        return json_answer({"alive": True})

    async def let_go(_: web.Application) -> None:
        stream.close()

    made = web.Application()
    made.add_routes([web.get("/livez", alive), *desk.routes, *Page(stream).routes])
    made.on_shutdown.append(let_go)
    return made
