"""What a host answers over HTTP: that it lives, that it is ready, its metrics, its leases.

    /livez    200 as long as the event loop turns
    /readyz   200, or 503 with what is wrong; owning no lease is not wrong. In either case with
              the ranges whose observers fail or do not come back: a restart mends none
    /metrics  for Prometheus
    /leases   the leases of this host, as it knows them, and which ranges are paused, and why
    /         a page that shows all of this, and the fleet; see ``changefeed.host.page``

A process of several processors has this for each of them under ``/processors/NAME/``, but for
the metrics. ``/livez``, ``/readyz`` and ``/metrics`` at its top are of all, and ``/`` leads to
the first page.

A program that embeds a host mounts them in its own server, as a sub-application of aiohttp
(``endpoints``) or as an ASGI application (``asgi_endpoints``): FastAPI, Starlette and others
mount such. There is no access control: a client that reaches the address may read. Only
who has ``web.token`` can change anything, from the page.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiohttp import hdrs, web
from prometheus_client import CollectorRegistry

from changefeed.fleet.status import Report
from changefeed.host.host import Host
from changefeed.host.page.answer import Answer, json_answer
from changefeed.host.page.of_host import HostPage
from changefeed.host.page.page import Page
from changefeed.host.status import report_of
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.processor_paths import mount_processors
from changefeed.runtime.scrape import Scrape, accepts_gzip
from changefeed.runtime.web_server import WebLimits, serving

PATHS = ("/livez", "/readyz", "/metrics", "/leases")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
AsgiApp = Callable[
    [Scope, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


class HostEndpoints:
    """The answers for the host of a processor, also before it is among ``hosts``."""

    def __init__(
        self,
        name: str,
        registry: CollectorRegistry | None,
        hosts: Mapping[str, Host],
        processor: str = "",
        make_observer: ObserverFactory | None = None,
    ) -> None:
        self.name = name
        self.processor = processor
        self._hosts = hosts
        self.make_observer = make_observer
        self._scrape = None if registry is None else Scrape(registry)

    @property
    def host(self) -> Host | None:
        return self._hosts.get(self.processor)

    async def answer(self, path: str, *, accepts_gzip: bool = False) -> Answer:
        """Answer for a path. On the event loop, where alone the host's values do not change;
        but metrics are made beside it.
        """
        if path == "/metrics" and self._scrape is not None:
            return Answer(
                content_type=self._scrape.content_type,
                body=await self._scrape.render(compressed=accepts_gzip),
                packed=accepts_gzip,
            )
        return self._answer_at_once(path)

    def _answer_at_once(self, path: str) -> Answer:
        if path == "/livez":
            return json_answer({"host": self.name, "alive": True})
        if path == "/readyz":
            ready = self.readiness()
            return json_answer({"host": self.name, **ready}, 200 if ready["ready"] else 503)
        if path == "/leases":
            return json_answer(self._report())
        there = ", ".join(x for x in PATHS if x != "/metrics" or self._scrape is not None)
        return json_answer({"error": f"there is no {path}. Known paths: {there}"}, 404)

    def readiness(self) -> dict[str, Any]:
        """Say whether the host is ready, what keeps it from that, and which ranges fail."""
        problems = self._problems()
        failing = [x for x in self._report().ranges if x.state in ("failing", "stuck")]
        return {"ready": not problems, "problems": problems, "ranges": failing}

    def _report(self) -> Report:
        return Report(host=self.name) if self.host is None else report_of(self.host)

    def _problems(self) -> list[str]:
        if self.host is None:
            return ["its feed or its lease container has not been opened yet; see the log"]
        expiration = self.host.rules.judged.expiration
        return self.host.health.problems(longest_without_listing=expiration)


def serving_hosts(
    listening: socket.socket,
    name: str,
    registry: CollectorRegistry,
    makes: Mapping[str, ObserverFactory],
    hosts: Mapping[str, Host],
) -> AbstractAsyncContextManager[None]:
    """Answer for the hosts of a process of this ``name``: ``hosts`` has each once it is open.

    ``makes`` has what makes the observers of each processor.
    """
    answers = {
        x: HostEndpoints(name, None if x else registry, hosts, x, make)
        for x, make in makes.items()
    }
    if only := answers.get(""):
        app = application(only)
    else:
        app = application_of(HostEndpoints(name, registry, hosts), answers)
    return serving(app, WebLimits(), listening)


def endpoints(host: Host) -> web.Application:
    """Return the endpoints of ``host`` for aiohttp: ``app.add_subapp("/changefeed/", …)``.

    ``/metrics`` is among them unless the host counts with the meters of your program.
    """
    return application(HostEndpoints(host.name, host.registry, {"": host}))


def application_of(
    process: HostEndpoints, answers: Mapping[str, HostEndpoints]
) -> web.Application:
    """Return the endpoints of a process of several processors, which answer by their names."""
    made, respond = web.Application(), _responder(process)

    async def say_ready(_: web.Request) -> web.Response:
        each = {name: x.readiness() for name, x in answers.items()}
        ready = all(x["ready"] for x in each.values())
        found = {"host": process.name, "ready": ready, "processors": each}
        return json_answer(found, 200 if ready else 503).response

    made.router.add_get("/livez", respond)
    made.router.add_get("/metrics", respond)
    made.router.add_get("/readyz", say_ready)
    mount_processors(made, {name: application(x, [*answers]) for name, x in answers.items()})
    return made


def application(answers: HostEndpoints, processors: Sequence[str] = ()) -> web.Application:
    """Return the endpoints of one host: of one of several ``processors``, if it has a name."""
    made = web.Application()
    respond = _responder(answers)
    made.add_routes([web.get(path, respond) for path in PATHS])
    page = HostPage(
        lambda: answers.host,
        answers.make_observer,
        processor=answers.processor,
        processors=processors,
    )
    page.serve_with(made)
    return made


def _responder(answers: HostEndpoints) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def respond(request: web.Request) -> web.Response:
        route = request.match_info.route.resource
        assert route is not None, "only our own routes lead here"
        found = await answers.answer(
            "/" + route.canonical.rpartition("/")[2],  # we may be mounted anywhere
            accepts_gzip=accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, "")),
        )
        return found.response

    return respond


def asgi_endpoints(host: Host) -> AsgiApp:
    """Return the endpoints of ``host`` as an ASGI application: ``app.mount("/changefeed", …)``.

    As ``endpoints``. It must be called on the event loop that the host runs on, as a server
    does that runs both. Its page can only be looked at, and asks each few seconds what is new.
    """
    answers = HostEndpoints(host.name, host.registry, {"": host})
    page = HostPage(lambda: host, acts=False)

    async def app(
        scope: Scope,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        if scope["type"] == "lifespan":
            await _follow_lifespan(receive, send)
        elif scope["type"] == "http":
            answer = await _answered(answers, page.page, scope)
            await _send(send, answer, head=scope["method"] == hdrs.METH_HEAD)
        else:
            await send({"type": "websocket.close", "code": 1000})

    return app


async def _answered(answers: HostEndpoints, page: Page, scope: Scope) -> Answer:
    if scope["method"] not in (hdrs.METH_GET, hdrs.METH_HEAD):
        return json_answer({"error": "only GET and HEAD"}, 405)
    # A server says where we are mounted, and some leave that in the path, some do not.
    accepted = b",".join(v for k, v in scope["headers"] if k == b"accept-encoding")
    packed = accepts_gzip(accepted.decode("latin-1"))
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    shown = await page.answer(path, packed=packed)
    return shown or await answers.answer(path, accepts_gzip=packed)


async def _send(
    send: Callable[[Message], Awaitable[None]], found: Answer, *, head: bool
) -> None:
    headers = [
        *((k.lower().encode(), v.encode()) for k, v in found.headers.items()),
        (b"content-length", b"%d" % len(found.body)),
    ]
    if found.status == web.HTTPMethodNotAllowed.status_code:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if head else found.body})


async def _follow_lifespan(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Agree to a start and a stop: the host is run by the program, not by its server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
