"""The files of the page, as they are sent: read once, compressed once, under a strict policy.

The policy lets a browser load what this address serves, and nothing else: no script or style
stands in the page itself, and no text becomes markup (``trusted-types``), whatever names and
bodies contain.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"
SAFE: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer of the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    content_type: str
    body: bytes
    packed: bytes
    tag: str


@cache
def page_file(name: str) -> PageFile | None:
    """Return a file of the page, ``None`` if there is no such."""
    if name not in _names():
        return None
    body = files("changefeed.host.page").joinpath("static", name).read_bytes()
    return PageFile(
        content_type=_TYPES[name.rpartition(".")[2]],
        body=body,
        packed=gzip.compress(body, mtime=0),
        tag=f'"{hashlib.blake2b(body, digest_size=8).hexdigest()}"',
    )


@cache
def _names() -> frozenset[str]:
    folder = files("changefeed.host.page").joinpath("static")
    return frozenset(x.name for x in folder.iterdir() if x.name.rpartition(".")[2] in _TYPES)
