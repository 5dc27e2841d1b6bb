"""The columns of a change, and record batches of them.

Every feed has the same columns, so that a query reads any feed. ``body`` and ``previous``
are JSON text as it came: Spark parses it, in parallel and without Python. A change is
named by ``range`` and ``sequence``. ``generation`` is left out unless it is asked for: of
two changes of one key the later has the greater (``generation``, ``sequence``), also
across ranges that end.

Building a batch costs a Python list for each column, and a column that was not asked for
costs nothing: Spark does not tell a Python source which columns a query needs, so the
option ``columns`` does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from feeds.errors import FeedRefused
from feeds.eventlog.columns import Columns
from feeds.feed import Change, RangeId
from pipeline.errors import PipelineRefused

from .access import Piece

_TIME = pa.timestamp("us", tz="UTC")

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "range": pa.string(),
    "sequence": pa.int64(),
    "key": pa.string(),
    "id": pa.string(),
    "operation": pa.string(),
    "body": pa.string(),
    "previous": pa.string(),
    "committed_at": _TIME,
    "generation": pa.int32(),
}
_SQL: Final = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.int32(): "INT",
    _TIME: "TIMESTAMP",
}
ENVELOPE: Final[tuple[str, ...]] = tuple(x for x in _ARROW if x != "generation")
EVERYTHING: Final[tuple[str, ...]] = tuple(_ARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Which columns, in which order."""

    columns: tuple[str, ...] = ENVELOPE

    @classmethod
    def of(cls, text: str) -> "Envelope":
        """Read names with commas between them. Raise ``PipelineRefused`` for a wrong one."""
        names = tuple(x.strip() for x in text.split(",") if x.strip())
        for name in names:
            if name not in _ARROW:
                raise PipelineRefused(
                    f"a change has no column {name!r}; there are: {', '.join(EVERYTHING)}"
                )
        if not names or len(set(names)) < len(names):
            raise PipelineRefused(f"columns={text!r}: name each column once, and at least one")
        return cls(columns=names)

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{x}` {_SQL[_ARROW[x]]}" for x in self.columns)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(x, _ARROW[x]) for x in self.columns])

    def batch(self, range_id: RangeId, piece: Piece, generation: int) -> pa.RecordBatch:
        """Make a batch of some changes of one range."""
        source = _columns(piece) if isinstance(piece, Columns) else _changes(piece)
        size = len(piece)
        try:
            arrays = [
                pa.repeat(_constant(x, range_id, generation), size)
                if x in ("range", "generation")
                else _array(x, source[x]())
                for x in self.columns
            ]
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            first = source["sequence"]()[0]
            raise FeedRefused(
                f"range {range_id!r} has a body that is no UTF-8 text among the {size} changes "
                f"from sequence {first} on: it cannot become a column of text"
            ) from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _constant(name: str, range_id: RangeId, generation: int) -> pa.Scalar:
    return pa.scalar(range_id if name == "range" else generation, _ARROW[name])


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    if name == "committed_at":
        return pa.array(values, pa.int64()).view(_TIME)
    return pa.array(values, _ARROW[name])


_Source = Mapping[str, Callable[[], Sequence[Any]]]


def _columns(piece: Columns) -> _Source:
    return {
        "sequence": lambda: range(piece.first, piece.first + len(piece)),
        "key": lambda: piece.keys,
        "id": lambda: piece.ids,
        "operation": lambda: piece.operations,
        "body": lambda: [x or None for x in piece.bodies],
        "previous": lambda: piece.previous,
        "committed_at": lambda: piece.committed_us,
    }


def _changes(piece: Sequence[Change]) -> _Source:
    return {
        "sequence": lambda: [x.sequence for x in piece],
        "key": lambda: [x.key for x in piece],
        "id": lambda: [x.id for x in piece],
        "operation": lambda: [str(x.operation) for x in piece],
        "body": lambda: [x.body or None for x in piece],
        "previous": lambda: [x.previous for x in piece],
        "committed_at": lambda: [x.committed_us for x in piece],
    }
