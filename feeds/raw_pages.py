"""Pages that are cut after the next one was asked for, and into columns.

For engines that work on columns, and have a thread for each range: where a page stands is
known from its answer, so its successor is on the way while it is cut. No ``Change`` is made.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from changefeed.feeds.feed import Change, FeedRange, Operation, Position, RangeId


@dataclass(frozen=True, slots=True, kw_only=True)
class RawPage:
    """What was answered, and the position behind it. There is no body if there was nothing."""

    position: Position
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Changes that follow each other in one range, as columns of one length: see ``Change``.

    A body is whatever has its bytes; it is empty where there is none.
    """

    sequences: Sequence[int]
    keys: Sequence[str]
    ids: Sequence[str]
    operations: Sequence[Operation]
    bodies: Sequence[bytes | msgspec.Raw]
    previous: Sequence[bytes | None]
    committed_us: Sequence[int]

    def __len__(self) -> int:
        return len(self.sequences)

    @classmethod
    def of(cls, changes: Sequence[Change]) -> "Rows":
        return cls(
            sequences=[x.sequence for x in changes],
            keys=[x.key for x in changes],
            ids=[x.id for x in changes],
            operations=[x.operation for x in changes],
            bodies=[x.body for x in changes],
            previous=[x.previous for x in changes],
            committed_us=[x.committed_us for x in changes],
        )

    def up_to(self, sequence: int) -> "Rows":
        """Return the changes whose sequences are no greater."""
        return self._only(slice(bisect_right(self.sequences, sequence)))

    def _only(self, which: slice) -> "Rows":
        if which.indices(len(self))[:2] == (0, len(self)):
            return self
        return Rows(
            sequences=self.sequences[which],
            keys=self.keys[which],
            ids=self.ids[which],
            operations=self.operations[which],
            bodies=self.bodies[which],
            previous=self.previous[which],
            committed_us=self.committed_us[which],
        )


@runtime_checkable
class ReadsRawPages(Protocol):
    """A feed whose ``read`` is made of these two."""

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        """Ask for a page, and do not look into it. Raise what ``Feed.read`` raises."""
        ...

    def rows(self, range_id: RangeId, page: RawPage) -> Rows:
        """Cut a page. Raise ``FeedRefused`` where it is none, or of another feed."""
        ...
