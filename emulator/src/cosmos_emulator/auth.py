"""Master key signatures, and the Entra token of emulators.

A signature is HMAC-SHA256 over verb, resource type, link and date. A resource may be addressed
by names or by resource ids; a link by ids is signed by its last id alone, in lower case, so
several links may be right for one request.

Clients in tests make the Entra token by themselves, as Microsoft's emulator takes it: a JWT in
which the text of the master key stands in the place of a signature.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from email.utils import formatdate, parsedate_to_datetime
from functools import lru_cache
from typing import Final
from urllib.parse import quote

import msgspec

from cosmos_emulator.errors import CosmosError, bad_request

_OLDEST_SECONDS: Final = 15 * 60
_DATES_KEPT: Final = 64


def key_bytes(key: str) -> bytes:
    """Decode a master key; ``ValueError`` with advice if it is not base64."""
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error as error:
        raise ValueError(
            "the emulator's key must be base64 text, as account keys are"
        ) from error


def check_signature(
    *,
    key: bytes,
    verb: str,
    kinds: Sequence[str],
    links: Sequence[str],
    date: str,
    token: str,
    now: float,
) -> None:
    """Raise 401 unless one of the links was signed with the key, 403 if too long ago.

    ``token`` is the Authorization header, unquoted.
    """
    given = dict(x.split("=", 1) for x in token.split("&") if "=" in x)
    if given.get("type") != "master":
        raise CosmosError(
            401,
            "The request is not signed with a master key (type=master&ver=1.0&sig=…), and has "
            "no resource token (type=resource&…) or Entra token (type=aad&…).",
        )
    wanted = (_signature(key, verb, x, y, date) for x in kinds for y in links)
    sent = given.get("sig", "").encode()
    if not any(hmac.compare_digest(x.encode(), sent) for x in wanted):
        raise CosmosError(
            401,
            "The input authorization token can't serve the request: it was signed with "
            "another key, or not over this verb, resource and date. The emulator's key is "
            "the well-known development key unless it was started with --key.",
        )
    _check_date(date, now)


def signed_headers(key: bytes, verb: str, kind: str, link: str, now: float) -> dict[str, str]:
    """Return the headers by which a request is signed."""
    date = formatdate(now, usegmt=True)
    token = f"type=master&ver=1.0&sig={_signature(key, verb, kind, link, date)}"
    return {"Authorization": quote(token, safe=""), "x-ms-date": date}


class _Claims(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds since 1970."""

    exp: float
    nbf: float = 0.0


def check_entra_token(*, key: bytes, token: str, now: float) -> None:
    """Raise 401 unless a token is the one of emulators, for this key, and in its time."""
    _, claims, signature = [*token.split("."), "", "", ""][:3]
    wanted = base64.urlsafe_b64encode(base64.b64encode(key)).rstrip(b"=")
    if not hmac.compare_digest(signature.rstrip("=").encode(), wanted):
        raise CosmosError(
            401,
            "The Entra token is not the one of emulators for this key: a JWT whose third part "
            "is the key in base64url. Tokens of Entra itself cannot be checked here.",
        )
    try:
        text = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
        found = msgspec.json.decode(text, type=_Claims)
    except (binascii.Error, msgspec.DecodeError, ValueError) as error:
        raise CosmosError(
            401, f"The time of the Entra token cannot be read: {error}."
        ) from error
    if not found.nbf <= now < found.exp:
        raise CosmosError(401, "The Entra token has expired, or begins later. Take a new one.")


def _signature(key: bytes, verb: str, kind: str, link: str, date: str) -> str:
    signed = f"{verb.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    return base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()


@lru_cache(_DATES_KEPT)
def _seconds_of(date: str) -> float:
    """Return a date as seconds since 1970: many requests have the same."""
    return parsedate_to_datetime(date).timestamp()


def _check_date(date: str, now: float) -> None:
    try:
        signed_at = _seconds_of(date)
    except ValueError as error:
        raise bad_request(f"x-ms-date is not an RFC 1123 date: {date!r}.") from error
    if abs(now - signed_at) > _OLDEST_SECONDS:
        raise CosmosError(
            403,
            f"The request was signed at {date}, more than 15 minutes from the emulator's "
            f"clock. Set the clock right, or sign each request when it is sent.",
        )
