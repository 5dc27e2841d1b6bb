"""Who may act from the page, and who may see what changes hold.

To act takes the token. Dead letters hold changes whole, which is more than ``/leases`` and
``/metrics`` say: where there is a token, to see them takes it, too; where there is none, they
are shown to this machine only.
"""

import asyncio
import hmac
from collections.abc import Callable
from ipaddress import ip_address

from aiohttp import hdrs, web

from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger

_log = get_logger()
_AFTER_A_WRONG_ONE = 1.0
_BEARER = "Bearer "


class Access:
    """``secret`` returns the token, ``None`` if there is none. Without ``acts``,
    none may act.
    """

    def __init__(self, secret: Callable[[], str | None], *, acts: bool = True) -> None:
        self._secret = secret
        self._acts = acts

    @property
    def acts(self) -> bool:
        """Whether anyone may act."""
        try:
            return self._acts and self._secret() is not None
        except UserError:
            return False

    async def check_action(self, request: web.Request) -> None:
        """Raise ``web.HTTPException`` for a request that may not act."""
        token = self._token()
        if token is None or not self._acts:
            raise web.HTTPForbidden(
                text="this page can only be looked at: no token is set (web.token), or none "
                "may act"
            )
        await _check_token(request, token)

    async def check_letters(self, request: web.Request) -> None:
        """Raise ``web.HTTPException`` for a request that may not see dead letters."""
        token = self._token()
        if token is not None:
            await _check_token(request, token)
        elif not is_local(request):
            raise web.HTTPForbidden(
                text="dead letters hold changes whole: without a token (web.token) they are "
                "shown to this machine only"
            )

    def _token(self) -> str | None:
        """Return the token. Raise ``web.HTTPException`` while its file cannot be read."""
        try:
            return self._secret()
        except UserError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error


async def _check_token(request: web.Request, secret: str) -> None:
    given = request.headers.get(hdrs.AUTHORIZATION, "")
    if not given.startswith(_BEARER):
        raise web.HTTPUnauthorized(text="this takes the token (web.token)")
    token = given.removeprefix(_BEARER)
    if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), secret.encode()):
        _log.warning("page.action", outcome="refused", path=request.path, **origin(request))
        await asyncio.sleep(_AFTER_A_WRONG_ONE)
        raise web.HTTPUnauthorized(text="this is not the token (web.token)")


def origin(request: web.Request) -> dict[str, str | None]:
    """Say where a request is from: the address, and what a proxy claims."""
    return {
        "remote": request.remote,
        "forwarded_for": request.headers.get(hdrs.X_FORWARDED_FOR),
    }


def is_local(request: web.Request) -> bool:
    """Whether a browser on this machine asked for this machine by name.

    A page of another site can have a browser ask us under that site's name, and a proxy asks
    for others.
    """
    if any(x in request.headers for x in (hdrs.X_FORWARDED_FOR, hdrs.FORWARDED, hdrs.VIA)):
        return False
    return _is_loopback(request.remote) and _is_loopback(_named(request.host))


def _named(host: str) -> str:
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    return "127.0.0.1" if name.lower() == "localhost" else name


def _is_loopback(address: str | None) -> bool:
    try:
        return ip_address(address or "").is_loopback
    except ValueError:
        return False
