"""What of a log is to be sealed: decided from numbers alone.

A range is sealed from its beginning, block after block, so that what is sealed ends
somewhere and blocks go on from there. A segment is at most ``SEGMENT_BYTES`` of blocks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

SEGMENT_BYTES: Final = 128 * 1024 * 1024
BACKGROUND_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SealPolicy:
    """What is sealed: whatever any of these says.

    ``closed``: ranges that have ended. ``older_than``: changes that were committed so many
    seconds ago, with all before them. ``larger_than``: a range that has so many bytes in
    blocks, up to its last full block. ``everything`` there is.
    """

    closed: bool = False
    older_than: float | None = None
    larger_than: int | None = None
    everything: bool = False


BACKGROUND: Final = SealPolicy(closed=True, larger_than=BACKGROUND_BYTES)
"""What a writer seals by itself, if it is to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsealed:
    """What of one range is in blocks.

    ``last`` is its last sequence and ``full`` the last one in a block that does not grow any
    more. ``aged`` is the last sequence that is older than the policy says. ``sealed`` is the
    last one in a segment, and ``stored`` the bytes in blocks.
    """

    partition: int
    sealed: int
    last: int
    full: int
    stored: int
    closed: bool
    aged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Where a block lies, and the bytes of the range up to its end."""

    first: int
    last: int
    stored: int


def goal(policy: SealPolicy, found: Unsealed) -> int:
    """Return the last sequence to seal: ``found.sealed`` if there is nothing to do."""
    goals = [found.sealed]
    if policy.everything or (policy.closed and found.closed):
        goals.append(found.last)
    if policy.older_than is not None:
        goals.append(found.aged)
    if policy.larger_than is not None and found.stored >= policy.larger_than:
        goals.append(found.last if found.closed else found.full)
    return max(goals)


def pieces(
    blocks: Iterable[Block], before: int, up_to: int, most: int = SEGMENT_BYTES
) -> Iterator[tuple[int, int]]:
    """Yield the first and last sequence of each segment to make of blocks.

    ``before`` is how many bytes of the range lie before the first of them. A segment has at
    least one block, and no more than ``most`` bytes in several.
    """
    first, last, begin = 0, 0, before
    for block in blocks:
        if block.last > up_to:
            break
        if first and block.stored - begin > most:
            yield first, last
            first, begin = 0, before
        first, last, before = first or block.first, block.last, block.stored
    if first:
        yield first, last
