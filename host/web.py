"""What a host tells over HTTP: that it lives, that it is ready, its metrics, its leases.

    /livez    200 as long as the event loop turns
    /readyz   200, or 503 with what is wrong; owning no lease is not wrong
    /metrics  for Prometheus
    /leases   the leases of this host, as it knows them, and which ranges are paused, and why

The port is taken before the host joins, because its member record names it. Until the
host is made, a request waits. There is no access control: whoever reaches the address may
read, and nobody can change anything; it is this machine only unless told otherwise.
"""

import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from changefeed.host.host import Host
from changefeed.host.settings import LeaseSettings, WebSettings
from changefeed.runtime.errors import UserError

_BACKLOG = 128
_CLOSE_TIMEOUT = 1.0


class AddressRefused(UserError):
    """We cannot listen there."""


@contextmanager
def listening_socket(settings: WebSettings) -> Iterator[socket.socket]:
    """Take the port. Raise ``AddressRefused`` if that cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.bind, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressRefused(_advice(settings, error)) from error
    with listening:
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_BACKLOG)
        except OSError as error:
            raise AddressRefused(_advice(settings, error)) from error
        yield listening


def url_of(listening: socket.socket) -> str:
    """Return where others find it; the machine's name stands for all its addresses."""
    host, port = listening.getsockname()[:2]
    if ip_address(host).is_unspecified:
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(
    listening: socket.socket, host: Host, registry: CollectorRegistry, settings: LeaseSettings
) -> AsyncIterator[None]:
    """Answer for ``host`` until the block is left."""
    runner = web.AppRunner(
        endpoints(host, registry, settings),
        access_log=None,
        handle_signals=False,
        shutdown_timeout=_CLOSE_TIMEOUT,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        yield
    finally:
        await runner.cleanup()


def endpoints(
    host: Host, registry: CollectorRegistry, settings: LeaseSettings
) -> web.Application:
    # Metrics are rendered on the event loop, where alone the host's values stand still.

    async def livez(_: web.Request) -> web.Response:
        return web.json_response({"host": host.name, "alive": True})

    async def readyz(_: web.Request) -> web.Response:
        problems = host.health.problems(
            longest_without_listing=longest_without_listing(settings)
        )
        return web.json_response(
            {"host": host.name, "ready": not problems, "problems": problems},
            status=503 if problems else 200,
        )

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def leases(_: web.Request) -> web.Response:
        return web.json_response(leases_of(host))

    application = web.Application()
    application.add_routes(
        [
            web.get("/livez", livez),
            web.get("/readyz", readyz),
            web.get("/metrics", metrics),
            web.get("/leases", leases),
        ]
    )
    return application


def leases_of(host: Host) -> dict[str, object]:
    """Return the document of ``/leases``. A lag that was not measured yet is null."""
    lags = host.lags
    return {
        "host": host.name,
        "incarnation": host.incarnation,
        "leases": [
            {
                "range": name,
                "epoch": lease.epoch,
                "renewals": lease.renewals,
                "renewed_at": lease.stamp,
                "lag": lags.get(name),
            }
            for name, lease in sorted(host.leases.items())
        ],
        "paused": dict(sorted(host.paused.items())),
    }


def longest_without_listing(settings: LeaseSettings) -> float:
    """After so many seconds without a look at the container, something is wrong with it."""
    return max(settings.expiration, 2 * settings.balance_interval + settings.call_timeout)


def _advice(settings: WebSettings, error: OSError) -> str:
    where = f"web.bind {settings.bind!r}, web.port {settings.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} of {settings.bind} is in use by another program ({where}): "
            f"choose another, or 0 for any that is free"
        )
    return f"cannot listen for the web endpoints: {error} ({where})"
