"""What answers of HTTP servers say, ours and those of others: a body that has an end, and how
long to wait.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import aiohttp

_DIGITS = 20  # a number of more is as far away


async def bounded_body(answer: "aiohttp.ClientResponse", most: int) -> bytes | None:
    """Return the body; ``None`` for one of more than ``most`` bytes, of which the rest is not
    read.
    """
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def retry_after(text: str) -> float | None:
    """Return how many seconds a ``Retry-After`` asks to wait: a number of them, or a date
    (RFC 9110, 10.2.3). ``None`` for what is neither.
    """
    said = text.strip()
    if said.isdecimal() and said.isascii():
        return float(said[:_DIGITS])
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
