"""The row of a range, and what it begins with when the range is opened. No I/O.

A sub-range that is opened for the first time has no row. It goes on where the newest row of its
keys says: its lease may be behind that, where an owner has crashed.

The rows of ranges that were merged may stand at different places. A merge waits until its
ranges have been read to the end, so only after a crash is anything to be read that is in one of
them: such a change is refused, as no row says of which range it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.runtime.errors import Failure

COLUMNS = "range_id, low, high, depth, cuts, epoch, checkpoint, applied, unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How far a range is applied, and the epoch of the owner that may commit; 0 if none may.

    ``checkpoint`` is a text of ``Context.checkpoint_with``, and ``applied`` the highest
    sequence that was ever applied. A change up to the sequence ``unclear`` that the checkpoint
    does not cover may be applied or not: no row says which.
    """

    range: FeedRange
    epoch: int
    checkpoint: str
    applied: int = -1
    unclear: int = -1

    @classmethod
    def of(cls, found: Sequence[Any]) -> "Row":
        """Read the ``COLUMNS`` of a table."""
        name, low, high, depth, cuts, epoch, checkpoint, applied, unclear = found
        place = FeedRange(id=RangeId(name), low=low, high=high, generation=(depth, cuts))
        return cls(
            range=place, epoch=epoch, checkpoint=checkpoint, applied=applied, unclear=unclear
        )

    def moved(self, checkpoint: str, changes: Sequence[Change]) -> "Row":
        """Return the row once ``changes`` are applied, too."""
        applied = max(self.applied, changes[-1].sequence)
        return replace(self, checkpoint=checkpoint, applied=applied)

    @property
    def values(self) -> Sequence[object]:
        x = self.range
        last = self.epoch, self.checkpoint, self.applied, self.unclear
        return x.id, x.low, x.high, *x.generation, *last


def opened(mine: Row, rows: Sequence[Row], *, reset_epoch: int) -> tuple[Row, Sequence[Row]]:
    """Return the row with which an owner begins, and those of ranges that go on in it.

    ``mine`` is as its lease has it, ``rows`` are those of the same range of the feed, and
    ``reset_epoch`` is the context's. Raise ``Failure`` if a later owner has begun.
    """
    place = mine.range
    near = [x for x in rows if x.range.overlaps(place)]
    own = [x for x in near if x.range.generation == place.generation]
    for x in near:
        if x.range.generation > place.generation or (x in own and x.epoch > mine.epoch):
            raise former_owner(mine, f"epoch {x.epoch} of range {x.range.id!r}")
    before = [x for x in near if x.range.generation < place.generation]
    ended = [x for x in before if x.range.id != place.id]
    if reset_epoch > max((x.epoch for x in own), default=0):
        return mine, ended
    if own:
        return replace(own[0], epoch=mine.epoch), ended
    if not before:
        return mine, ended
    last = max(before, key=lambda x: x.range.generation)
    if last.range.covers(place):
        return replace(last, range=place, epoch=mine.epoch), ended
    applied = max(x.applied for x in before)
    return replace(mine, applied=applied, unclear=applied), ended


def former_owner(mine: Row, by: str) -> Failure:
    return Failure(
        f"range {mine.range.id!r} is applied under {by} by now, so its owner of epoch "
        f"{mine.epoch} commits nothing. If you have deleted the leases, and no host runs with "
        f"the old ones, set the epochs in the table of positions to 0"
    )
