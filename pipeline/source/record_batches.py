"""The columns of a change, and record batches of them.

Every feed has the same columns, so that a query reads any feed. ``body`` and ``previous``
are JSON text as it came: Spark parses it, in parallel and without Python. Where it is no
UTF-8, bytes are escaped: no body may stop a stream. A change is named by ``range`` and
``sequence``. ``generation`` is left out unless it is asked for: of two changes of one key
the later has the greater (``generation``, ``sequence``), also across ranges that end.

Changes that come in the columns of a log become a batch without a look at any row; of
others, a batch costs a Python list for each column. A column that was not asked for costs
nothing: Spark does not let a Python source know which columns a query needs, so the option
``columns`` does.
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from changefeed.feeds.errors import RangeDamaged
from changefeed.feeds.feed import Operation, RangeId
from changefeed.feeds.raw_pages import Rows
from changefeed.log.format.arrow_columns import (
    TIME,
    Arrays,
    arrays,
    joined,
    readable,
    scalar,
)
from changefeed.log.format.block_format import Columns
from changefeed.pipeline.source.reader import Block
from changefeed.runtime.errors import UserError

_ARROW: Final[Mapping[str, pa.DataType]] = {
    "range": pa.string(),
    "sequence": pa.int64(),
    "key": pa.string(),
    "id": pa.string(),
    "operation": pa.string(),
    "body": pa.string(),
    "previous": pa.string(),
    "committed_at": TIME,
    "generation": pa.int32(),
}
_SPARK: Final[Mapping[pa.DataType, DataType]] = {
    pa.string(): StringType(),
    pa.int64(): LongType(),
    pa.int32(): IntegerType(),
    TIME: TimestampType(),
}
ENVELOPE: Final[tuple[str, ...]] = tuple(x for x in _ARROW if x != "generation")
EVERYTHING: Final[tuple[str, ...]] = tuple(_ARROW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Which columns, in which order."""

    columns: tuple[str, ...] = ENVELOPE

    @classmethod
    def of(cls, text: str) -> "Envelope":
        """Read names with commas between them. Raise ``UserError`` for a wrong one."""
        names = tuple(x.strip() for x in text.split(",") if x.strip())
        for name in names:
            if name not in _ARROW:
                raise UserError(
                    f"a change has no column {name!r}. Known columns: {', '.join(EVERYTHING)}"
                )
        if not names or len(set(names)) < len(names):
            raise UserError(f"columns={text!r}: name each column once, and at least one")
        return cls(columns=names)

    def spark_schema(self) -> StructType:
        """Return the columns as Spark knows them."""
        return StructType([StructField(x, _SPARK[_ARROW[x]]) for x in self.columns])

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(x, _ARROW[x]) for x in self.columns])

    def batch(self, range_id: RangeId, block: Block, generation: int) -> pa.RecordBatch:
        """Make a batch of some changes of one range."""
        if isinstance(block, pa.RecordBatch):
            making = {x: partial(_text_of, block.column(x)) for x in block.schema.names}
            return self._made(making, range_id, generation, size=len(block), first=0)
        if isinstance(block, Columns):
            size, first = len(block.layout.kinds), block.first
            made = self._made(arrays(block), range_id, generation, size=size, first=first)
            return made.slice(block.skip, block.count)
        rows = block if isinstance(block, Rows) else Rows.of(block)
        first = rows.sequences[0] if rows else 0
        return self._made(_arrays(rows), range_id, generation, size=len(rows), first=first)

    def _made(
        self, making: Arrays, range_id: RangeId, generation: int, *, size: int, first: int
    ) -> pa.RecordBatch:
        constants = {
            "range": joined([range_id.encode()])[0],
            "generation": scalar(_ARROW["generation"], array("i", [generation]).tobytes()),
        }
        try:
            made = [
                pa.repeat(constants[x], size) if x in constants else making[x]()
                for x in self.columns
            ]
        except (pa.ArrowInvalid, IndexError) as error:
            raise RangeDamaged(
                range_id,
                f"the changes of range {range_id!r} cannot be read, among the {size} from "
                f"sequence {first} on: the log is damaged ({error}). Restore its directory "
                f"from a copy",
            ) from error
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _arrays(rows: Rows) -> Arrays:
    text, number = pa.string(), pa.int64()
    return {
        "sequence": lambda: pa.array(rows.sequences, number),
        "key": lambda: pa.array(rows.keys, text),
        "id": lambda: pa.array(rows.ids, text),
        "operation": lambda: _operations(rows.operations),
        "body": lambda: joined(rows.bodies),
        "previous": lambda: readable(rows.previous),
        "committed_at": lambda: pa.array(rows.committed_us, number).view(TIME),
    }


def _text_of(column: pa.Array) -> pa.Array:
    """Return a column of a segment; bodies that are bytes become text."""
    return readable(column.to_pylist()) if column.type == pa.binary() else column


def _operations(found: Sequence[Operation]) -> pa.Array:
    if found and found.count(found[0]) == len(found):  # always, of the latest versions
        return pa.repeat(joined([found[0].encode()])[0], len(found))
    return pa.array([*map(str, found)], pa.string())
