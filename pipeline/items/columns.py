"""Items as columns. Some are of the format, and mean what they mean of a change; others are
fields of the items, by their names, with the types of a schema.

``key``, ``id``, ``body`` and ``committed_at`` are those of a change: the last write of an item
is its last change. ``rescued`` is the body of an item in which something did not fit. Without a
schema the first four are the columns. With one, ``columns`` names those of its columns that are
of the format; all others are fields.

A query asks only for the fields that columns need, or for whole items where ``body`` or
``rescued`` is a column.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changefeed.feeds.cosmos.keys import key_text, walked
from changefeed.log.format.arrow_columns import TIME, readable
from changefeed.pipeline.items import json_values
from changefeed.pipeline.items.json_values import Misfits, Reading, fields_of
from changefeed.runtime.errors import UserError

BODY, RESCUED, COMMITTED_AT, ID = "body", "rescued", "committed_at", "id"
_OF_FORMAT: Final[Mapping[str, DataType]] = {
    "key": StringType(),
    ID: StringType(),
    BODY: StringType(),
    COMMITTED_AT: TimestampType(),
    RESCUED: StringType(),
}
DEFAULT: Final = ("key", ID, BODY, COMMITTED_AT)
_TIME: Final = "_ts"
_MICROSECONDS: Final = 1_000_000
_PLAIN: Final[Mapping[type[DataType], tuple[pa.DataType, Reading]]] = {
    BooleanType: (pa.bool_(), json_values.boolean),
    ByteType: (pa.int8(), json_values.whole(8)),
    ShortType: (pa.int16(), json_values.whole(16)),
    IntegerType: (pa.int32(), json_values.whole(32)),
    LongType: (pa.int64(), json_values.whole(64)),
    FloatType: (pa.float32(), json_values.single),
    DoubleType: (pa.float64(), json_values.double),
    DateType: (pa.date32(), json_values.day),
    TimestampType: (TIME, partial(json_values.moment, zoned=True)),
    TimestampNTZType: (pa.timestamp("us"), partial(json_values.moment, zoned=False)),
}


def _int(bits: int) -> Any:
    most = (1 << (bits - 1)) - 1
    return Annotated[int, msgspec.Meta(ge=-most - 1, le=most)]


_STRICT: Final[Mapping[type[DataType], Any]] = {
    StringType: str,
    BooleanType: bool,
    ByteType: _int(8),
    ShortType: _int(16),
    IntegerType: _int(32),
    LongType: _int(64),
    DoubleType: float,
}
"""What msgspec takes for values of a type: fewer than a column, and the same values."""
_KNOWN: Final = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, DATE, TIMESTAMP, "
    "TIMESTAMP_NTZ, ARRAY, STRUCT, and MAP by STRING"
)
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
"""What msgspec takes in no name of a field."""
KeyPaths = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemColumns:
    """``schema`` is that of Spark; ``of_format`` names the columns that are no fields."""

    schema: StructType
    of_format: frozenset[str]

    @classmethod
    def of(cls, schema: StructType, names: Iterable[str]) -> "ItemColumns":
        """Raise ``UserError`` for types that there are not, and for a column of the
        format that the schema has not.
        """
        of_format = frozenset(names)
        found = {x.name: x.dataType for x in schema.fields}
        for name in of_format:
            if found.get(name) != _OF_FORMAT[name]:
                kind = _OF_FORMAT[name].simpleString().upper()
                raise UserError(
                    f"columns names {name!r}, and the schema has no such column: add "
                    f"{name} {kind} to .schema(...), or leave {name} out of columns"
                )
        for x in schema.fields:
            _column(x.dataType, x.name)
            _require_null(x.nullable, x.name)
        return cls(schema=schema, of_format=of_format)

    @property
    def arrow(self) -> pa.Schema:
        return pa.schema([(x.name, _column(x.dataType, x.name)[0]) for x in self.schema.fields])

    def type_at(self, path: Sequence[str]) -> DataType | None:
        """Return the type of a field that a column is, or that is in one."""
        head, *rest = path
        if head in self.of_format:
            return None
        found: DataType = self.schema
        for name in (head, *rest):
            fields = found.fields if isinstance(found, StructType) else []
            inner = next((x.dataType for x in fields if x.name == name), None)
            if inner is None:
                return None
            found = inner
        return found

    def needed(self, paths: KeyPaths, *, with_identity: bool) -> Sequence[str] | None:
        """Return the fields of an item to ask for; ``None`` for whole items.

        ``with_identity``: also what tells the item from others, whose key lies at ``paths``.
        """
        if not self.of_format.isdisjoint((BODY, RESCUED)):
            return None
        names = [x.name for x in self.schema.fields if x.name not in self.of_format]
        if ID in self.of_format or with_identity:
            names.append(ID)
        if COMMITTED_AT in self.of_format:
            names.append(_TIME)
        if "key" in self.of_format or with_identity:
            names += [x[0] for x in paths]
        return [*dict.fromkeys(names)]

    def batch(self, items: Sequence[msgspec.Raw], paths: KeyPaths) -> pa.RecordBatch:
        """Make a batch of items, or of the fields of items that are needed."""
        found = self._batch_of_fields(items)
        return self._batch_of_any(items, paths) if found is None else found

    def _batch_of_fields(self, items: Sequence[msgspec.Raw]) -> pa.RecordBatch | None:
        """Make a batch where columns have plain types and each value fits; else ``None``."""
        kinds: list[Any] = [_STRICT.get(type(x.dataType)) for x in self.schema.fields]
        names = [x.name for x in self.schema.fields]
        if self.of_format or None in kinds or _ESCAPED.search("".join(names)):
            return None
        attributes = [f"c{n}" for n in range(len(names))]
        fields = [
            (attribute, kind | None, msgspec.field(name=name, default=None))
            for attribute, kind, name in zip(attributes, kinds, names, strict=True)
        ]
        row: Any = msgspec.defstruct("Row", fields, gc=False)
        try:
            rows = msgspec.json.decode(b"[%b]" % b",".join(items), type=list[row])
        except msgspec.DecodeError:
            return None
        made = self.arrow
        columns = [map(attrgetter(x), rows) for x in attributes]
        return pa.RecordBatch.from_arrays([*map(pa.array, columns, made.types)], schema=made)

    def _batch_of_any(self, items: Sequence[msgspec.Raw], paths: KeyPaths) -> pa.RecordBatch:
        bodies, misfits = [*map(bytes, items)], [Misfits() for _ in items]
        fields = [*map(fields_of, bodies)]
        for body, found, misfit in zip(bodies, fields, misfits, strict=True):
            if found is None:
                misfit.note(body)
        makers: Mapping[str, Callable[[], Any]] = {
            "key": lambda: [None if x is None else key_of(x, paths) for x in fields],
            ID: lambda: _read(json_values.text, ID, fields, misfits),
            BODY: lambda: readable(bodies),
            COMMITTED_AT: lambda: pa.array(map(_time, fields), pa.int64()).view(TIME),
            RESCUED: lambda: readable(
                [x if y.seen else None for x, y in zip(bodies, misfits, strict=True)]
            ),
        }
        made: dict[str, Any] = {}
        last = sorted(self.schema.fields, key=lambda x: x.name == RESCUED)  # which asks all
        for column in last:
            kind, reading = _column(column.dataType, column.name)
            values = (
                makers[column.name]()
                if column.name in self.of_format
                else _read(reading, column.name, fields, misfits)
            )
            is_made = isinstance(values, pa.Array)
            made[column.name] = values if is_made else pa.array(values, kind)
        return pa.RecordBatch.from_arrays(
            [made[x.name] for x in self.schema.fields], schema=self.arrow
        )


def of_format(names: Iterable[str]) -> StructType:
    """Return columns of the format as a schema."""
    return StructType([StructField(x, _OF_FORMAT[x]) for x in names])


def names_in(text: str) -> tuple[str, ...]:
    """Read names of columns of the format, with commas between them.

    Raise ``UserError`` for a wrong one.
    """
    names = tuple(x.strip() for x in text.split(",") if x.strip())
    for name in names:
        if name not in _OF_FORMAT:
            raise UserError(
                f"columns: the format has no column {name!r}. It has {', '.join(_OF_FORMAT)}; "
                f"name fields of items in .schema(...)"
            )
    if not names or len(set(names)) < len(names):
        raise UserError(f"columns={text!r}: name each column once, and at least one")
    return names


def key_of(fields: Mapping[str, msgspec.Raw], paths: KeyPaths) -> str | None:
    """Return the partition key of an item as text, as changes have it; ``None`` for one that
    has no UTF-8.
    """
    values = []
    try:
        for head, *rest in paths:
            raw = fields.get(head)
            value = msgspec.UNSET if raw is None else msgspec.json.decode(raw)
            values.append(walked(value, rest))
    except msgspec.DecodeError:
        return None
    return key_text(values)


def _read(
    reading: Reading,
    name: str,
    items: Sequence[Mapping[str, msgspec.Raw] | None],
    misfits: Sequence[Misfits],
) -> list[Any]:
    return [
        None if x is None or (raw := x.get(name)) is None else reading(bytes(raw), misfit)
        for x, misfit in zip(items, misfits, strict=True)
    ]


def _time(fields: Mapping[str, msgspec.Raw] | None) -> int | None:
    raw = None if fields is None else fields.get(_TIME)
    return None if raw is None else int(msgspec.json.decode(raw)) * _MICROSECONDS


def _column(kind: DataType, name: str) -> tuple[pa.DataType, Reading]:
    """Return the type of a column for Arrow, and what reads its values."""
    if kind == StringType():  # without a collation
        return pa.string(), json_values.text
    if isinstance(kind, DecimalType):
        arrow = pa.decimal128(kind.precision, kind.scale)
        return arrow, json_values.decimal(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        _require_null(kind.containsNull, name)
        inner, reading = _column(kind.elementType, name)
        return pa.list_(pa.field("element", inner)), json_values.array(reading)
    if isinstance(kind, MapType) and kind.keyType == StringType():
        _require_null(kind.valueContainsNull, name)
        inner, reading = _column(kind.valueType, name)
        return pa.map_(pa.string(), inner), json_values.map_of(reading)
    if isinstance(kind, StructType):
        for x in kind.fields:
            _require_null(x.nullable, f"{name}.{x.name}")
        found = {x.name: _column(x.dataType, f"{name}.{x.name}") for x in kind.fields}
        arrow = pa.struct([(x, y[0]) for x, y in found.items()])
        return arrow, json_values.struct({x: y[1] for x, y in found.items()})
    if type(kind) not in _PLAIN:
        raise UserError(
            f"the column {name!r} cannot be {kind.simpleString().upper()}. Types: {_KNOWN}. "
            f"Read it as STRING, and cast it"
        )
    return _PLAIN[type(kind)]


def _require_null(nullable: bool, name: str) -> None:  # noqa: FBT001 - it is what is checked
    if not nullable:
        raise UserError(
            f"the column {name!r} is NOT NULL, and an item may lack it: leave NOT NULL out"
        )
