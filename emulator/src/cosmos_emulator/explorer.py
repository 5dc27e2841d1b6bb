"""``/_explorer/``: a page that shows the account, and the certificate for clients.

The page is one file. It asks the endpoints that everybody asks, and signs in the browser.
It runs its own script alone, connects to the emulator alone, and no other page may frame it.
"""

import base64
import hashlib
import re
from importlib.resources import files

from aiohttp import web

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.visitors import EXPLORER, refused


def add_explorer(router: web.UrlDispatcher, certificate: str | None) -> None:
    """Serve the page, and the certificate under the path that Microsoft's emulators have."""

    async def hand_out(_: web.Request) -> web.Response:
        if certificate is None:
            return refused(CosmosError(404, "There is no certificate: start with --tls."))
        return web.Response(text=certificate, content_type="application/x-pem-file")

    router.add_get(f"{EXPLORER}/emulator.pem", hand_out)
    router.add_get(f"{EXPLORER}/", _page)
    router.add_get(EXPLORER, _to_the_page)


async def _to_the_page(_: web.Request) -> web.Response:
    raise web.HTTPFound(f"{EXPLORER}/")


async def _page(_: web.Request) -> web.Response:
    text = (files("cosmos_emulator") / "explorer.html").read_text("utf-8")
    headers = {
        "Content-Security-Policy": _policy(text),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


def _policy(page: str) -> str:
    """Allow what stands in the page itself, and requests to where it is from."""
    return (
        f"default-src 'none'; connect-src 'self'; script-src {_hash_of('script', page)}; "
        f"style-src {_hash_of('style', page)}; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'none'"
    )


def _hash_of(tag: str, page: str) -> str:
    (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = hashlib.sha256(inside.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
