"""The page of one host: what it knows, served with its other endpoints."""

from collections.abc import AsyncIterator, Callable

from aiohttp import web

from changefeed.host.host import Host
from changefeed.host.page.host_source import HostSource
from changefeed.host.page.live import Live
from changefeed.host.page.page import Page
from changefeed.host.page.peers import Peers
from changefeed.host.page.view import View
from changefeed.leases.errors import ContainerUnavailable

_EVERY = 2.0


class HostPage:
    """``host`` returns the host once there is one: the page is served from before."""

    def __init__(self, host: Callable[[], Host | None]) -> None:
        self._host = host
        self._peers: Peers | None = None
        self._source: HostSource | None = None
        self.live = Live(self._look, every=_EVERY)
        self.page = Page(self.live)

    def serve_with(self, app: web.Application) -> None:
        """Add the routes. While the application runs, members are asked what they know."""
        app.add_routes(self.page.routes)
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
            raise ContainerUnavailable(
                "its feed or its lease container has not been opened yet; see the log"
            )
        if self._source is None:
            self._source = HostSource(host, self._peers, pipelines=host.settings.web.pipelines)
        return await self._source.look()
