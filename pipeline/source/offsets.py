"""How far a query has got in each range. Frozen: Spark keeps these texts in checkpoints.

    {"e1.p03.v00-ff": ["a1b2c3d4/700", false, 0], ...}
    {"0": ["\"7052\"", false, 0, "", "FF"], "@": "a9cLAJp7SWw=", "@columns": "key,body"}

For each range: the position up to which it is read, whether it was read to its very
end, and its generation; for feeds that forget the bounds of ranges that are gone, the
bounds as well. Where positions do not say of which feed they are, ``"@"`` says it.
``"@columns"`` says which columns the query has read, once it has, and ``"@epoch"`` the last
epoch of the hosts that it goes on from. ``"@done"`` says what these have done behind their
positions. Spark compares offsets as text, so the keys are always in order.

A range that goes on with the keys of ended ones is *introduced*: it appears in the end
offset of a batch at the position where reading it starts, and is first read in the batch
after. So a batch says by itself what it reads, and a key's changes never come from an
ended range and from its child in one batch. An ended range stays for as long as a
child of it waits for another parent, and for one batch more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.runtime.errors import StoreRefused, UserError

_WITH_BOUNDS = 5
_FEED = "@"
_COLUMNS = "@columns"
_EPOCH = "@epoch"
_DONE = "@done"
_WRONG = (msgspec.MsgspecError, StoreRefused, AttributeError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """How far one range is read.

    ``generation`` is greater than that of every range whose keys this one took over: of
    two changes of one key, the later has the greater generation or, if these are equal,
    the greater sequence.
    """

    position: Position
    ended: bool = False
    generation: int = 0
    low: str = ""
    high: str = ""

    def at(self, position: Position) -> "Mark":
        return replace(self, position=position)

    def at_its_end(self) -> "Mark":
        return replace(self, ended=True)

    def as_json(self) -> list[Any]:
        bounds = [self.low, self.high] if self.high else []
        return [self.position, self.ended, self.generation, *bounds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """A mark for each range that is being read.

    ``feed`` is what the feed is known by, if its positions do not say it: those of a
    container that was recreated mean something else. ``columns`` are those of the query,
    with commas between them, if it is known. ``epoch`` is that on which an observer's epochs
    are counted. ``done`` are the checkpoints of hosts that say more than a position: what an
    observer need not be given again.
    """

    marks: Mapping[RangeId, Mark] = field(default_factory=dict)
    feed: str = ""
    columns: str = ""
    epoch: int = 0
    done: Mapping[RangeId, Checkpoint] = field(default_factory=dict)

    def with_marks(self, marks: Mapping[RangeId, Mark]) -> "Offset":
        return replace(self, marks=marks)

    def as_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {name: mark.as_json() for name, mark in self.marks.items()}
        if self.feed:
            found[_FEED] = self.feed
        if self.columns:
            found[_COLUMNS] = self.columns
        if self.epoch:
            found[_EPOCH] = self.epoch
        if self.done:
            found[_DONE] = {name: x.text for name, x in self.done.items()}
        return dict(sorted(found.items()))

    def as_text(self) -> str:
        return msgspec.json.encode(self.as_json()).decode()

    @classmethod
    def of(cls, value: Any) -> "Offset":
        """Read what ``as_json`` wrote, or its text. Raise ``UserError`` else."""
        try:
            given = msgspec.json.decode(value) if isinstance(value, str) else value
            found = dict(sorted(given.items()))  # sorted, also if another tool wrote it
            feed = msgspec.convert(found.pop(_FEED, ""), str)
            columns = msgspec.convert(found.pop(_COLUMNS, ""), str)
            epoch = msgspec.convert(found.pop(_EPOCH, 0), int)
            texts = msgspec.convert(found.pop(_DONE, {}), dict[RangeId, str])
            done = {name: Checkpoint.of_text(x) for name, x in texts.items()}
            marks = {RangeId(name): _mark(x) for name, x in found.items()}
        except _WRONG as error:
            raise UserError(
                f"{str(value)[:200]!r} is not an offset of a change feed: it was written by "
                f"another source. Give the query a checkpoint directory of its own"
            ) from error
        return cls(marks=marks, feed=feed, columns=columns, epoch=epoch, done=done)


def _mark(found: Any) -> Mark:
    position, ended, generation, *bounds = found
    if not (
        isinstance(position, str)
        and isinstance(ended, bool)
        and isinstance(generation, int)
        and len(found) in (_WITH_BOUNDS - 2, _WITH_BOUNDS)
    ):
        raise ValueError(found)
    low, high = bounds or ("", "")
    return Mark(
        position=Position(position),
        ended=ended,
        generation=generation,
        low=low,
        high=high,
    )
