"""The hashes of partition keys, and where to cut a range of them. Pure values.

In version 2 of Cosmos DB's hashing a hash is 126 bits in 32 hexadecimal digits: all lie evenly
in [00, 40), although the space is said to end at FF. (Of a hierarchical key it is the hash
of the first component that counts here.) Bounds are cut where Cosmos DB cuts them, one below
an even number: 1FFF…F is the middle.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from changefeed.feeds.cosmos.topology import HIGHEST, LOWEST
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange

EVEN_HASHES: Final = 2
"""The version of hashing whose hashes lie evenly."""
_DIGITS: Final = 32
_SPACE: Final = 1 << 126  # one more than the highest hash


def even_parts(found: FeedRange, into: int) -> Iterator[tuple[str, str]]:
    """Yield the bounds of so many parts of a range, which have about as many hashes each.

    Raise ``FeedRefused`` for a range without bounds, or with too few hashes.
    """
    if not found.high:
        raise FeedRefused(
            f"range {found.id!r} cannot be split: its lease does not say which hashes it has. "
            f"It will when a host of this version has written it, or Cosmos DB has split it"
        )
    low, high = _edge(found.low), _edge(found.high)
    if high - low < into:
        raise FeedRefused(f"range {found.id!r} has too few hashes to be split into {into}")
    cuts = (f"{low + (high - low) * n // into - 1:0{_DIGITS}X}" for n in range(1, into))
    return pairwise([found.low, *cuts, found.high])


def _edge(bound: str) -> int:
    """Return how many hashes lie below a bound, and it; none below the lowest."""
    if bound in (LOWEST, HIGHEST):
        return _SPACE if bound else 0
    return min(int(bound[:_DIGITS].ljust(_DIGITS, "0"), 16) + 1, _SPACE)
