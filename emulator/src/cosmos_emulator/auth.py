"""Master key signatures: HMAC-SHA256 over verb, resource type, link and date.

A resource may be addressed by names or by resource ids; a link by ids is signed by its
last id alone, in lower case, so several links may be right for one request.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from cosmos_emulator.errors import CosmosError, bad_request

_OLDEST_SECONDS = 15 * 60


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
    header: str,
    now: float,
) -> None:
    """Raise 401 unless one of the links was signed with the key, 403 if too long ago."""
    given = dict(x.split("=", 1) for x in unquote(header).split("&") if "=" in x)
    if given.get("type") != "master":
        raise CosmosError(
            401,
            "The request is not signed with a master key (type=master&ver=1.0&sig=…). Entra "
            "tokens are not supported by this emulator.",
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


def _signature(key: bytes, verb: str, kind: str, link: str, date: str) -> str:
    signed = f"{verb.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    return base64.b64encode(hmac.digest(key, signed.encode(), "sha256")).decode()


def _check_date(date: str, now: float) -> None:
    try:
        signed_at = parsedate_to_datetime(date).timestamp()
    except ValueError as error:
        raise bad_request(f"x-ms-date is not an RFC 1123 date: {date!r}.") from error
    if abs(now - signed_at) > _OLDEST_SECONDS:
        raise CosmosError(
            403,
            f"The request was signed at {date}, more than 15 minutes from the emulator's "
            f"clock. Set the clock right, or sign each request when it is sent.",
        )
