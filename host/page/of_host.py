"""The page of one host: what it knows, served with its other endpoints."""

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from aiohttp import web
from msgspec.structs import replace

from changefeed.fleet.peers import Peers
from changefeed.host.host import Host
from changefeed.host.page.access import Access
from changefeed.host.page.actions import ActionContext, ActionHandler
from changefeed.host.page.page import Page
from changefeed.host.page.state import PageSource, PageState
from changefeed.host.page.stream import EventStream
from changefeed.host.status import look
from changefeed.host.wiring import find_observer
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import StoreUnavailable

_EVERY = 2.0


class HostPage:
    """``host`` returns the host once there is one: the page is served from before. ``make``
    makes observers that dead letters are replayed to; without one, the settings name it. The
    page of a ``processor`` links to those of the other ``processors`` of its process.
    """

    def __init__(
        self,
        host: Callable[[], Host | None],
        make: ObserverFactory | None = None,
        *,
        acts: bool = True,
        processor: str = "",
        processors: Sequence[str] = (),
    ) -> None:
        self._host = host
        self._make = make
        self._access = Access(self._secret, acts=acts)
        self._actions = ActionHandler(self._context, self._access)
        self._peers: Peers | None = None
        self._state: PageState | None = None
        self._source: PageSource | None = None
        self._processor, self._processors = processor, processors
        self.stream = EventStream(self._look, every=_EVERY)
        self.page = Page(self.stream)

    def serve_with(self, app: web.Application) -> None:
        """Add the routes. While the application runs, members are asked what they know."""
        app.add_routes([*self._actions.routes, *self.page.routes])
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._let_go)

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        async with Peers.opened() as self._peers, self.stream.looking():
            yield

    async def _let_go(self, _: web.Application) -> None:
        self.stream.close()

    async def _look(self) -> PageState:
        host = self._opened()
        peers = self._peers if self.stream.is_watched else None
        before = self._state
        status = await look(host, peers, None if before is None else before.status)
        if self._source is None:
            self._source = PageSource(
                host.settings,
                self._peers,
                me=host.name,
                acts=lambda: self._access.acts,
            )
        state = await self._source.state(status, is_watched=self.stream.is_watched)
        self._state = replace(state, processor=self._processor, processors=self._processors)
        return self._state

    def _opened(self) -> Host:
        host = self._host()
        if host is None:
            raise StoreUnavailable(
                "its feed or its lease container has not been opened yet; see the log"
            )
        return host

    def _secret(self) -> str | None:
        host = self._host()
        return None if host is None else host.settings.web.secret

    def _context(self) -> ActionContext | None:
        host = self._host()
        if host is None:
            return None
        return ActionContext(
            settings=host.settings,
            listing_every=host.rules.shown.balance_interval,
            container=host.container,
            feed=host.feed,
            make_observer=partial(self._made, host),
        )

    def _made(self, host: Host) -> ObserverFactory:
        return self._make or find_observer(host.settings.observer)
