"""Who may ask: by which name of this machine, from which web pages, from which machines.

Everybody knows the development key, so that a signature says nothing of a web page. A page from
elsewhere can reach this machine in two ways, and a browser tells of both:

* It asks another origin. ``Origin`` then names its own, and only the emulator's own pages, or
  those that ``--cors`` names, are let in.
* Its own name leads here (DNS rebinding). ``Host`` then has that name: names that anybody can
  have in the public DNS are refused unless ``--host-name`` gives them.

What the pages of ``--cors`` may do is what a client may do. They control nothing.
"""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.settings import EmulatorSettings

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
CONTROL: Final = "/_emulator"
EXPLORER: Final = "/_explorer"
_OWN_NETWORK: Final = (
    *(".localhost", ".local", ".internal", ".test", ".home.arpa"),
    ".invalid",  # behind a proxy, which alone knows it
)
"""Ends of names that the public DNS gives to nobody."""
_NAMES_KEPT: Final = 64
_PREFLIGHT_SECONDS: Final = 600


def doorkeeper(settings: EmulatorSettings) -> Callable[..., Awaitable[web.StreamResponse]]:
    """Return the middleware that refuses what a page from elsewhere may have sent."""
    names = frozenset(x.lower() for x in (*settings.host_names, settings.host))
    origins = frozenset(settings.cors)

    @lru_cache(_NAMES_KEPT)
    def is_ours(host: str) -> bool:
        return _is_ours(_name_in(host), names)

    @web.middleware
    async def keep(request: web.Request, handler: _Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        try:
            if not is_ours(request.host):
                raise _unknown(request.host)
            if origin is None or urlsplit(origin).netloc == request.host:
                return await handler(request)
            _check_origin(request.path, origin, origins)
        except CosmosError as error:
            return refused(error)
        if request.method == "OPTIONS":
            return web.Response(status=204, headers=_preflight(request.headers, origin))
        answer = await handler(request)
        answer.headers.update(_shared_with(origin))
        return answer

    return keep


def refused(error: CosmosError) -> web.Response:
    """Return the answer to a request that came no further than here."""
    return web.Response(
        status=error.status, body=error.body(""), content_type="application/json"
    )


def is_local(peer: str | None) -> bool:
    """Return whether the address of a peer is one of this machine's own."""
    try:
        address = ipaddress.ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1
    return bool((mapped or address).is_loopback)


def _is_ours(name: str, names: frozenset[str]) -> bool:
    """Return whether no stranger can lead a name to this machine."""
    is_near = "." not in name or name.endswith(_OWN_NETWORK)
    return name in names or is_near or _is_address(name)


def _unknown(host: str) -> CosmosError:
    name = _name_in(host)
    return CosmosError(
        403,
        f"The emulator does not answer to the name {name!r}: a web page could lead its own "
        f"name here. If the name is yours, start the emulator with --host-name {name}.",
    )


def _name_in(host: str) -> str:
    """Return the name of a ``Host`` without the port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_origin(path: str, origin: str, origins: frozenset[str]) -> None:
    """Raise 403 unless a page of another origin may send a request."""
    if path.startswith((CONTROL, EXPLORER)):
        raise CosmosError(403, f"{path} does not answer to pages from elsewhere ({origin}).")
    if not origins & {origin, "*"}:
        raise CosmosError(
            403,
            f"The emulator does not answer to pages from {origin}. If the page is yours, start "
            f"the emulator with --cors {origin}.",
        )


def _preflight(headers: Mapping[str, str], origin: str) -> dict[str, str]:
    return _shared_with(origin) | {
        "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
        "Access-Control-Allow-Headers": headers.get("Access-Control-Request-Headers", ""),
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }


def _shared_with(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": "*",
        "Vary": "Origin",
    }
