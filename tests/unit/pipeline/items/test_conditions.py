"""No filter that is pushed loses a row that Spark keeps, whatever items and schemas there are.

The emulator's engine answers the query, and ``kept`` says what Spark's own filter does.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)
from pyspark.sql.pandas.types import to_arrow_schema
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
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changefeed.pipeline.items.columns import ItemColumns
from changefeed.pipeline.items.conditions import Conditions
from changefeed.pipeline.items.questions import selected
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.run import parsed, run

Row = Mapping[str, Any]
NAMES = ("a", "b", 'odd "name"\n', "é", "committed_at")
PATHS = (("pk",),)
INSIDE = ("a", "c")
TEXTS = [
    *("", "a", "A", "ab", "b", "é", "\U0001f600", "\uff5e", "\ufffd", "5", "-1", "5.0", "true"),
    *("false", "null", "{", '{"a":1}', "[", "[1]", "NaN", "2026-01-31", "0001-01-01"),
    *("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00"),
]
NUMBERS = [
    *(0, 1, -1, 5, 127, 128, -129, 1 << 31, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, 1 << 62),
    *(0.0, -0.0, 0.1, 0.5, 1.5, 5.0, 1.00000001, 9007199254740992.0, 1e19, 1e300, -2.5),
]
FLAT: Sequence[DataType] = (
    *(StringType(), BooleanType(), ByteType(), ShortType(), IntegerType(), LongType()),
    *(FloatType(), DoubleType(), DecimalType(10, 2), DateType(), TimestampType()),
    TimestampNTZType(),
)
_WHOLE = [x for x in NUMBERS if isinstance(x, int)]
LITERALS: Mapping[type[DataType], Sequence[Any]] = {
    StringType: TEXTS,
    BooleanType: (True, False),
    DoubleType: [*map(float, NUMBERS), math.nan, math.inf, -math.inf],
    FloatType: (0.0, 0.5, 1.0, 5.0, 0.10000000149011612),
    **dict.fromkeys((ByteType, ShortType, IntegerType, LongType), _WHOLE),
}
HOLDS: Mapping[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: bytes.startswith,
    StringEndsWith: bytes.endswith,
    StringContains: operator.contains,
}
COMPARED: Sequence[type[Any]] = (
    *(EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual),
)
LIKE: Sequence[type[Any]] = (StringStartsWith, StringEndsWith, StringContains)


@dataclass(frozen=True, kw_only=True)
class World:
    """Schemas, items and filters, drawn at random so that values and literals tend to meet."""

    random: Random

    def type(self, depth: int = 0) -> DataType:
        kind = "flat" if depth > 1 else self.random.choice(["flat"] * 5 + ["list", "map", "in"])
        if kind == "flat":
            return self.random.choice(FLAT)
        if kind == "in":
            return self.struct(INSIDE, depth + 1)
        inner = self.type(depth + 1)
        return ArrayType(inner) if kind == "list" else MapType(StringType(), inner)

    def struct(self, names: Sequence[str], depth: int = 0) -> StructType:
        some = self.random.sample(names, self.random.randint(1, 2))
        return StructType([StructField(x, self.type(depth)) for x in some])

    def value(self, kind: DataType) -> Any:
        """Return JSON that fits a type, as a rule."""
        if self.random.random() < 0.25:
            odd: list[Sequence[Any]] = [
                [None],
                [True, False],
                [[], ["a"]],
                [{}, {"a": 1}],
                TEXTS,
                NUMBERS,
            ]
            return self.random.choice(self.random.choice(odd))
        if isinstance(kind, StructType):
            return self.fields(kind)
        if isinstance(kind, ArrayType):
            return [self.value(kind.elementType)]
        if isinstance(kind, MapType):
            return {"k": self.value(kind.valueType)}
        if isinstance(kind, NumericType):
            return self.random.choice(NUMBERS)
        return self.random.choice([True, False] if kind == BooleanType() else TEXTS)

    def fields(self, schema: StructType) -> dict[str, Any]:
        there = [x for x in schema.fields if self.random.random() < 0.9]
        return {x.name: self.value(x.dataType) for x in there}

    def filter(self, schema: StructType, rows: Sequence[Row]) -> Filter:
        """Return a filter as Spark pushes it: of a column, or of a field in one."""
        path: tuple[str, ...] = ()
        kind: DataType = schema
        while isinstance(kind, StructType) and (not path or self.random.random() < 0.8):
            x = self.random.choice(kind.fields)
            path, kind = (*path, x.name), x.dataType
        made: list[Filter] = [IsNull(path), IsNotNull(path)]
        if type(kind) in LITERALS:
            seen = [y for x in rows if (y := at(path, x)) is not None]
            known = [*LITERALS[type(kind)], *(seen * 10)]
            made += [x(path, self.random.choice(known)) for x in COMPARED]
            made.append(In(path, tuple(self.random.choices([*known, None], k=2))))
            if isinstance(kind, StringType):
                made += [x(path, self.random.choice(known)[:2]) for x in LIKE]
        found = self.random.choice(made)
        return Not(found) if self.random.random() < 0.4 else found


def at(path: Sequence[str], row: Row) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else value[name]
    return value


def kept(x: Filter, row: Row) -> bool | None:
    """Return what Spark's filter is for a row: ``None`` for null."""
    if isinstance(x, Not):
        inner = kept(x.child, row)
        return None if inner is None else not inner
    value = at(x.attribute, row)  # type: ignore[attr-defined]
    if isinstance(x, IsNull | IsNotNull):
        return (value is None) == isinstance(x, IsNull)
    if isinstance(x, EqualNullSafe):
        return value is not None and ordered(value) == ordered(x.value)
    if isinstance(x, In):
        among = [kept(EqualTo(x.attribute, y), row) for y in x.value]
        return True if True in among else None if None in among else False
    if value is None or x.value is None:  # type: ignore[attr-defined]
        return None
    return HOLDS[type(x)](ordered(value), ordered(x.value))  # type: ignore[attr-defined]


def ordered(value: Any) -> Any:
    """Return what compares as Spark compares: text by its bytes, NaN above all numbers."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return (False, value) if isinstance(value, int) else value


def answered(items: Sequence[bytes], columns: ItemColumns, conditions: Conditions) -> list[Row]:
    query = selected(columns, PATHS, conditions.query)
    body = {
        "query": query.text,
        "parameters": [{"name": x, "value": y} for x, y in query.parameters.items()],
    }
    # As it crosses the network.
    given = msgspec.json.decode(msgspec.json.encode(body))
    asked = parsed(given, now=0.0, budget=Budget(60.0))
    numbered = list(enumerate(items, start=1))
    page = run(
        lambda after: [x for x in numbered if x[0] > after],
        asked,
        limit=None,
        continuation=None,
    )
    rows: list[Row] = columns.batch([*map(msgspec.Raw, page.results)], PATHS).to_pylist()
    return rows


@pytest.mark.parametrize("seed", range(25))
def test_a_pushed_filter_loses_no_row_that_spark_keeps_and_changes_none(seed: int) -> None:
    world = World(random=Random(seed))
    for _ in range(10):
        schema = world.struct(NAMES)
        named = StructType([StructField("id", StringType()), *schema.fields])
        items = [
            msgspec.json.encode({"id": f"i{n}", **world.fields(schema)}) for n in range(12)
        ]
        columns = ItemColumns.of(named, ())
        assert columns.arrow == to_arrow_schema(named, timezone="UTC")
        every = answered(items, columns, Conditions(columns))
        for _ in range(10):
            wanted = [
                world.filter(schema, every) for _ in range(world.random.choice([1, 1, 2]))
            ]
            pushed = Conditions(columns)
            assert list(pushed.push(wanted)) == wanted
            found = answered(items, columns, pushed)
            assert [x for x in every if x in found] == found
            spark = [x for x in every if all(kept(y, x) for y in wanted)]
            left = [x for x in found if all(kept(y, x) for y in wanted)]
            assert left == spark, (wanted, pushed.query.text)


@pytest.mark.parametrize(
    ("kind", "wanted", "read"),
    [
        (IntegerType(), [GreaterThan(("a",), 4)], [5, 7]),
        (IntegerType(), [Not(In(("a",), (5, 6)))], [7, 1.5]),
        (DoubleType(), [LessThanOrEqual(("a",), 5.0)], [5, 1.5]),
        (StringType(), [EqualTo(("a",), "xy")], ["xy"]),
        (StringType(), [EqualTo(("a",), "5")], [5, 7, 1.5]),
        (StringType(), [StringStartsWith(("a",), "x")], ["xy"]),
        (StringType(), [IsNull(("a",))], [None]),
        (BooleanType(), [EqualTo(("a",), True)], [True]),
        (DateType(), [IsNotNull(("a",))], ["xy", ""]),
    ],
)
def test_a_filter_reads_no_more_than_it_must(
    kind: DataType, wanted: Sequence[Filter], read: Sequence[Any]
) -> None:
    values = [5, 7, 1.5, "xy", "", True, None, [1], {"b": 1}]
    items = [msgspec.json.encode({"id": str(n), "a": x}) for n, x in enumerate(values)]
    columns = ItemColumns.of(
        StructType([StructField("id", StringType()), StructField("a", kind)]), ()
    )
    conditions = Conditions(columns)
    list(conditions.push(wanted))
    found = [values[int(x["id"])] for x in answered(items, columns, conditions)]
    assert found == read
    assert [*map(type, found)] == [*map(type, read)]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (DoubleType(), LessThan(("a",), math.nan)),  # all numbers are, in Spark
        (LongType(), EqualTo(("a",), 1 << 53)),
        (StringType(), LessThan(("a",), "\uff5e")),  # another order in UTF-16
        (StringType(), StringStartsWith(("a",), "")),
        (FloatType(), EqualTo(("a",), 0.5)),
        (DateType(), EqualTo(("a",), datetime(2026, 1, 31, tzinfo=UTC).date())),
        (IntegerType(), IsNull(("a",))),
        (IntegerType(), EqualTo(("b",), 1)),
    ],
)
def test_what_json_or_cosmos_db_may_take_otherwise_is_left_to_spark(
    kind: DataType, wanted: Filter
) -> None:
    conditions = Conditions(ItemColumns.of(StructType([StructField("a", kind)]), ()))
    assert list(conditions.push([wanted])) == [wanted]
    assert conditions.query.text == ""


def test_the_time_of_a_write_is_compared_in_whole_seconds() -> None:
    schema = StructType(
        [StructField("committed_at", TimestampType()), StructField("id", StringType())]
    )
    columns = ItemColumns.of(schema, ("committed_at", "id"))
    items = [msgspec.json.encode({"id": f"i{n}", "_ts": n}) for n in range(5)]
    at = ("committed_at",)
    for wanted in (
        [GreaterThan(at, datetime.fromtimestamp(1.5, UTC)), LessThan(at, _second(3))],
        [EqualTo(at, _second(2)), EqualTo(("id",), "i2")],
        [Not(EqualTo(at, _second(2)))],
        [Not(GreaterThanOrEqual(at, _second(2))), IsNotNull(("id",))],
    ):
        conditions = Conditions(columns)
        list(conditions.push(wanted))
        found = answered(items, columns, conditions)
        every = answered(items, columns, Conditions(columns))
        spark = [x for x in every if all(kept(y, x) for y in wanted)]
        assert [x for x in found if all(kept(y, x) for y in wanted)] == spark
        assert len(found) <= len(spark) + 2


def _second(n: int) -> datetime:
    return datetime.fromtimestamp(n, UTC)
