"""The network of a simulated cluster: the real client and the real server, without sockets.

``SimConnection`` replaces the one place of the HTTP client that opens a connection. A request
is parsed, answered and refused by the handlers of the server.
"""

from collections.abc import AsyncIterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from aiohttp import web
from opentelemetry.metrics import NoOpMeterProvider

from changefeed.feeds.errors import FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.members import Heartbeat
from changefeed.log.brokers.metrics import BrokerMetrics
from changefeed.log.brokers.pings import Pings
from changefeed.log.brokers.server import BrokerServer, Handler
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.client import BrokerClient
from changefeed.log.client.connection import BrokerConnection, refuse
from changefeed.log.decoding import from_json
from changefeed.log.ids import era_in
from changefeed.log.protocol.messages import Answer, AppendRequest
from changefeed.log.protocol.routes import Routes
from changefeed.log.protocol.wire import CONTENT_TYPE
from tests.simulation.probes import BrokerProbe as Probe
from tests.simulation.progress import Violation

from .process import Unreachable

if TYPE_CHECKING:
    import aiohttp

    from changefeed.runtime.scrape import Scrape

    from .world import World

_SCHEME = "http://"
_ANY = "any"
"""A name behind which all brokers are, as that of a service in Kubernetes."""
_METERS = BrokerMetrics(NoOpMeterProvider())


class Asked(NamedTuple):
    """What a handler looks at in a request."""

    path: str
    query: Mapping[str, str]
    match_info: Mapping[str, str]
    body: bytes
    content_type: str = CONTENT_TYPE
    headers: Mapping[str, str] = {}

    @property
    def body_exists(self) -> bool:
        return bool(self.body)

    @property
    def content_length(self) -> int:
        return len(self.body)

    @property
    def content(self) -> "Asked":
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self.body


_servers: "WeakKeyDictionary[BrokerCore, BrokerServer]" = WeakKeyDictionary()


async def served(world: "World", core: BrokerCore, method: str, asked: Asked) -> web.Response:
    """Answer a request as the server of a broker does."""
    server = _servers.get(core)
    if server is None:
        none = cast("Scrape", None)
        server = BrokerServer(core, _METERS, none, token=None, problems=list[str])
        _servers[core] = server
    handlers: Mapping[tuple[str, str], Handler] = {
        ("GET", ""): server._topology,
        ("POST", "records"): server._append,
        ("GET", "records"): server._read,
        ("GET", "end"): server._end,
        ("GET", "since"): server._since,
        ("POST", "ping"): server._ping,
    }
    if asked.match_info["what"] == "ping":
        told = from_json(asked.body, Heartbeat).catalog
        world.probes.hit(Probe.TOLD, where=told > core.catalog.number)
    known = max(int(asked.query.get(x, 0)) for x in ("catalog", "at_least"))
    world.probes.hit(Probe.BEHIND_CLIENT, where=known > core.catalog.number)
    handler = handlers[method, asked.match_info["what"]]
    answer = await server._bordered(cast("web.Request", asked), handler)
    assert isinstance(answer, web.Response)
    if answer.status == web.HTTPInternalServerError.status_code:
        raise Violation(f"a broker failed to answer {asked.path}: {answer.text}")
    return answer


class SimConnection(BrokerConnection):
    """Reaches brokers by their ids, over a network that loses answers.

    ``of`` is the broker whose it is, which may not reach others.
    """

    def __init__(self, world: "World", of: str = "") -> None:
        super().__init__(cast("aiohttp.ClientSession", None), BrokerAccess())
        self._world = world
        self._of = of

    async def ask(
        self,
        method: str,
        url: str,
        query: Mapping[str, str],
        *,
        seconds: float,
        body: BytesIO | None = None,
        of: RangeId | None = None,
        any_answer: bool = False,
    ) -> bytes:
        host, _, path = url.removeprefix(_SCHEME).partition("/")
        world = self._world
        process = world.any_process() if host == _ANY else world.process_with_id(host)
        if process is None or (self._of, process.name) in world.parted:
            await world.pause(0.05)
            raise FeedUnavailable(f"{url} does not answer")
        asked = _asked(path, query, b"" if body is None else body.read())
        try:
            answer = await process.ask(lambda core: served(world, core, method, asked), seconds)
        except Unreachable as error:
            raise FeedUnavailable(f"{url} does not answer: {error}") from error
        assert isinstance(answer.body, bytes | bytearray)
        content = bytes(answer.body)
        if answer.status != web.HTTPOk.status_code and not any_answer:
            refuse(url, cast("aiohttp.ClientResponse", answer), content, of)
        return content


def sim_pings(world: "World", of: str) -> Pings:
    """Return how a broker pings others."""
    return Pings(SimConnection(world, of), _SCHEME.removesuffix("://"))


class SimClient(BrokerClient):
    """A client that knows one name for all brokers. What they answer it, it tells the world."""

    def __init__(self, world: "World", collection: str) -> None:
        address = BrokersAddress(urls=(_SCHEME + _ANY,), collection=collection)
        super().__init__(SimConnection(world), address)
        self._world = world
        self._era = 0
        """The newest era in what brokers have answered."""

    async def routes(self, **asked: Any) -> Routes:
        found = await super().routes(**asked)
        self._era = max(self._era, found.topology.era)
        return found

    async def append(self, url: str, log: str, request: AppendRequest, **how: Any) -> Answer:
        world = self._world
        if world.random.random() < 0.3:
            await world.pause(world.random.choice([0.0, 0.1, 0.7]))  # another overtakes it
        answer = await super().append(url, log, request, **how)
        is_over = era_in(request.batches[0].partition) < self._era
        world.answered(self.name, request, answer, is_over=is_over)
        return answer


def _asked(path: str, query: Mapping[str, str], body: bytes) -> Asked:
    """Take a path apart: v1/collections/C, and then partitions/P, and then what is asked."""
    if path == "v1/ping":
        return Asked(f"/{path}", query, {"what": "ping"}, body)
    _, _, collection, *more = map(unquote, path.split("/"))
    what = more[-1] if more else ""
    partition = more[1] if len(more) > 1 else ""
    found = {"collection": collection, "partition": partition, "what": what}
    return Asked(f"/{path}", query, found, body)
