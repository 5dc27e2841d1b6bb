"""The page of one host: what it knows, served with its other endpoints."""

from collections.abc import AsyncIterator, Callable
from functools import partial

from aiohttp import web

from changefeed.host.host import Host
from changefeed.host.page.access import Access, token_of
from changefeed.host.page.desk import Desk, Tools
from changefeed.host.page.host_source import HostSource
from changefeed.host.page.live import Live
from changefeed.host.page.page import Page
from changefeed.host.page.peers import Peers
from changefeed.host.page.view import View
from changefeed.host.wiring import find_observer
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import StoreUnavailable

_EVERY = 2.0


class HostPage:
    """``host`` returns the host once there is one: the page is served from before. ``make``
    makes observers that dead letters are replayed to; without one, the settings name it.
    """

    def __init__(
        self,
        host: Callable[[], Host | None],
        make: ObserverFactory | None = None,
        *,
        acts: bool = True,
    ) -> None:
        self._host = host
        self._make = make
        self._access = Access(self._secret, acts=acts)
        self._desk = Desk(self._tools, self._access)
        self._peers: Peers | None = None
        self._source: HostSource | None = None
        self.live = Live(self._look, every=_EVERY)
        self.page = Page(self.live)

    def serve_with(self, app: web.Application) -> None:
        """Add the routes. While the application runs, members are asked what they know."""
        app.add_routes([*self._desk.routes, *self.page.routes])
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._let_go)

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        async with Peers.opened() as self._peers, self.live.looking():
            yield

    async def _let_go(self, _: web.Application) -> None:
        self.live.close()

    async def _look(self) -> View:
        host = self._host()
        if host is None:
            raise StoreUnavailable(
                "its feed or its lease container has not been opened yet; see the log"
            )
        if self._source is None:
            self._source = HostSource(host, self._peers, acts=self._access.acts)
        return await self._source.look()

    def _secret(self) -> str | None:
        host = self._host()
        return None if host is None else token_of(host.settings.web)

    def _tools(self) -> Tools | None:
        host = self._host()
        if host is None:
            return None
        return Tools(
            settings=host.settings,
            container=host.container,
            feed=host.feed,
            make_observer=partial(self._made, host),
        )

    def _made(self, host: Host) -> ObserverFactory:
        return self._make or find_observer(host.settings.observer)
