"""Positions and sequences of a Cosmos DB feed, and the tokens its client wants instead.

A position is the etag of the change feed as it came, quotes included: ``"7052"`` says
that everything up to LSN 7052 was read. Other change feed processors keep the same text,
so a lease can pass between them. Of which range it is, the lease says; the opaque
token of the client, which holds both, is made for each read.

``"0"`` lies before everything. It is our own word for the beginning, where the server has none.

A transaction has one LSN however many items it wrote, but each change needs a sequence of
its own. So a sequence is the LSN times 65,536, plus the place within the transaction,
where the last one always has the highest place there is: it alone then says whether a
reader may go on behind this LSN, or has to read the transaction again.
"""

import re
from collections import Counter
from typing import Final

import msgspec

from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Position, RangeId

BEGINNING: Final = Position('"0"')
_POSITION: Final = re.compile(r'"[\x21\x23-\x7e]+"')  # an etag of one word
_SESSION_LSN: Final = re.compile(r":(?:-?\d+#)?(\d+)")

_PLACE_BITS: Final = 16
_LAST: Final = (1 << _PLACE_BITS) - 1


def check_position(range_id: RangeId, after: Position) -> None:
    """Refuse what no Cosmos DB feed can have given."""
    if not _POSITION.fullmatch(after):
        raise RangeRefused(
            range_id,
            f"range {range_id!r} cannot be read from {after!r}: a position in a Cosmos DB "
            f"change feed looks like '\"7052\"', so this one is of another kind of feed, or "
            f"was damaged. Reset the lease of this range",
        )


def position(lsn: int) -> Position:
    """Return the position behind an LSN."""
    return Position(f'"{lsn}"')


def lsn_of(after: Position) -> int | None:
    """Return the LSN of a position, or ``None`` where the server writes it otherwise."""
    digits = after.strip('"')
    return int(digits) if digits.isascii() and digits.isdigit() else None


def sequences(lsns: list[int]) -> list[int]:
    """Number changes by their LSNs, which never fall; the last LSN must be complete."""
    if len(set(lsns)) == len(lsns):  # nearly always: each was written by itself
        return [(lsn << _PLACE_BITS) | _LAST for lsn in lsns]
    found: list[int] = []
    for lsn, count in Counter(lsns).items():
        first, others = lsn << _PLACE_BITS, count - 1
        found += range(first, first + min(others, _LAST))
        # As a rule none: the places are used up.
        found += [first + _LAST - 1] * (others - _LAST)
        found.append(first + _LAST)
    return found


def last_sequence(lsn: int) -> int:
    """Return the sequence of the last change of an LSN."""
    return (lsn << _PLACE_BITS) | _LAST


def lsn_in(sequence: int) -> int:
    """Return the LSN of a change."""
    return sequence >> _PLACE_BITS


def position_after(sequence: int) -> Position:
    """Return the position behind a change, or before its transaction if more of it follows."""
    lsn, place = lsn_in(sequence), sequence & _LAST
    return position(lsn if place == _LAST else lsn - 1)


def session_lsn(token: str | None) -> int | None:
    """Read the newest LSN of a range from a session token of either version.

    ``0:-1#12`` and ``0:12`` are version 1, ``0:3#12#1=11`` is version 2.
    """
    found = _SESSION_LSN.search(token or "")
    return int(found.group(1)) if found else None


def client_range(low: str, high: str) -> dict[str, object]:
    """Return hash bounds the way the client writes a feed range."""
    return {"Range": {"min": low, "max": high, "isMinInclusive": True, "isMaxInclusive": False}}


def client_token(after: Position, *, container_rid: str, mode: str, low: str, high: str) -> str:
    """Return the position with which the client reads one range behind a position.

    ``startFrom`` says Beginning whatever was true: the client sends it along, and with a
    position it must not narrow anything.
    """
    bounds = client_range(low, high)
    token = {
        "v": "v2",
        "containerRid": container_rid,
        "mode": mode,
        "startFrom": {"Type": "Beginning"},
        "continuation": {
            "v": "v2",
            "rid": container_rid,
            "continuation": [{"token": after, "range": bounds["Range"]}],
            **bounds,
        },
    }
    return _base64(msgspec.json.encode(token))


def _base64(data: bytes) -> str:
    return str(msgspec.to_builtins(data))  # msgspec writes bytes as Base64
