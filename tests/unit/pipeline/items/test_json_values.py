"""What of JSON fits a column, and what does not."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changefeed.pipeline.items.columns import ItemColumns, of_format
from changefeed.runtime.errors import UserError

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
INSIDE = StructType([StructField("n", IntegerType()), StructField("s", StringType())])


def columns(kind: DataType) -> ItemColumns:
    fields = [StructField("a", kind), StructField("rescued", StringType())]
    return ItemColumns.of(StructType(fields), ("rescued",))


def read(kind: DataType, text: str) -> tuple[Any, bool]:
    """Return what a column has of some JSON, and whether it fits."""
    item = f'{{"a":{text}}}'
    (row,) = columns(kind).batch([msgspec.Raw(item.encode())], [("pk",)]).to_pylist()
    assert row["rescued"] in (None, item)
    return row["a"], row["rescued"] is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (StringType(), '"a\\u00e9\\n"', "aé\n"),
        (StringType(), '"\\ud83d\\ude00"', "\U0001f600"),
        (StringType(), "1.50", "1.50"),
        (StringType(), '{"x": [1]}', '{"x": [1]}'),
        (BooleanType(), "true", True),
        (ByteType(), "-128", -128),
        (IntegerType(), "5.0", 5),
        (IntegerType(), "5e2", 500),
        (LongType(), "9223372036854775807", (1 << 63) - 1),
        (LongType(), "9007199254740993.0", (1 << 53) + 1),
        (DoubleType(), "5", 5.0),
        (FloatType(), "0.5", 0.5),
        (DecimalType(4, 2), "12.3", Decimal("12.30")),
        (DecimalType(4, 2), "1.2e1", Decimal("12.00")),
        (DecimalType(38, 0), "9" * 38, Decimal("9" * 38)),
        (DateType(), '"2026-01-31"', date(2026, 1, 31)),
        (TimestampType(), '"2026-01-31T12:00:00.1234567Z"', AT),
        (TimestampType(), '"2026-01-31T13:00:00.123456+01:00"', AT),
        (TimestampNTZType(), '"2026-01-31T12:00:00.123456"', AT.replace(tzinfo=None)),
        (ArrayType(IntegerType()), "[1, null]", [1, None]),
        (MapType(StringType(), StringType()), '{"x": 1}', [("x", "1")]),
        (INSIDE, '{"s": "x", "more": 1}', {"n": None, "s": "x"}),
        (INSIDE, "null", None),
    ],
)
def test_a_value_that_fits_is_itself(kind: DataType, text: str, value: Any) -> None:
    assert read(kind, text) == (value, True)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BooleanType(), '"true"', None),
        (ByteType(), "128", None),
        (IntegerType(), "1.5", None),
        (IntegerType(), '"1"', None),
        (IntegerType(), "1e999999999", None),
        (IntegerType(), "1e-99999999999999999999", None),
        (LongType(), "9223372036854775808", None),
        (DoubleType(), '"NaN"', None),
        (DoubleType(), "1e999", None),
        (FloatType(), "1e39", None),
        (DecimalType(4, 2), "100", None),
        (DecimalType(4, 2), "0.125", None),
        (DecimalType(4, 2), "1e-99999999999999999999", None),
        (DateType(), '"20260131"', None),
        (DateType(), '"2026-02-30"', None),
        (TimestampType(), '"2026-01-31T12:00:00"', None),
        (TimestampNTZType(), '"2026-01-31T12:00:00Z"', None),
        (ArrayType(IntegerType()), '[1, "2"]', [1, None]),
        (ArrayType(IntegerType()), "{}", None),
        (MapType(StringType(), IntegerType()), "[]", None),
        (INSIDE, '{"n": "x", "s": "y"}', {"n": None, "s": "y"}),
        (INSIDE, "[]", None),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_its_item_is_rescued(
    kind: DataType, text: str, value: Any
) -> None:
    assert read(kind, text) == (value, False)


def test_a_result_that_is_no_object_has_no_fields_and_is_rescued() -> None:
    batch = columns(IntegerType()).batch([msgspec.Raw(b"5"), msgspec.Raw(b"{}")], [("pk",)])
    assert batch.to_pylist() == [{"a": None, "rescued": "5"}, {"a": None, "rescued": None}]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (BinaryType(), "cannot be BINARY"),
        (StringType("UNICODE_CI"), "cannot be STRING COLLATE UNICODE_CI"),
        (MapType(IntegerType(), StringType()), "cannot be MAP<INT,STRING>"),
        (ArrayType(BinaryType()), "cannot be BINARY"),
        (ArrayType(IntegerType(), containsNull=False), "NOT NULL"),
        (StructType([StructField("x", IntegerType(), nullable=False)]), "'a.x' is NOT NULL"),
    ],
)
def test_a_type_that_items_have_not_is_refused(kind: DataType, said: str) -> None:
    with pytest.raises(UserError, match=said):
        columns(kind)


def test_a_column_of_the_format_has_its_type() -> None:
    with pytest.raises(UserError, match="add committed_at TIMESTAMP"):
        ItemColumns.of(of_format(("id",)), ("committed_at",))


@given(
    kind=st.sampled_from(
        [StringType(), BooleanType(), ByteType(), IntegerType(), LongType(), DoubleType()]
    ),
    values=st.lists(
        st.none()
        | st.booleans()
        | st.integers(-(1 << 66), 1 << 66)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([127, 128, -128, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, 1 << 63])
        | st.text(max_size=3)
        | st.lists(st.integers(), max_size=1),
        max_size=5,
    ),
)
def test_values_are_the_same_beside_one_that_fits_nothing(
    kind: DataType, values: list[Any]
) -> None:
    """A page in which all fits is read at once, any other value by value."""
    plain = ItemColumns.of(StructType([StructField("a", kind)]), ())
    items = [msgspec.Raw(json.dumps({"b": 1, "a": x}).encode()) for x in values]
    found = plain.batch(items, [("pk",)]).to_pylist()
    assert plain.batch([*items, msgspec.Raw(b"1")], [("pk",)]).to_pylist() == [
        *found,
        {"a": None},
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (StringType(), r'"\ud800"', None),
        (StringType(), r'["x", "\ud800"]', r'["x", "\ud800"]'),
        (ArrayType(StringType()), r'["x", "\ud800"]', ["x", None]),
        (MapType(StringType(), StringType()), r'{"\ud800": "x"}', None),
        (INSIDE, r'{"n": 1, "s": "\udc00"}', {"n": 1, "s": None}),
        (DateType(), r'"\ud8002026"', None),
        (TimestampType(), r'"\ud800"', None),
    ],
)
def test_of_half_a_surrogate_pair_only_its_own_value_is_lost(
    kind: DataType, text: str, value: Any
) -> None:
    schema = {"a": kind, "n": IntegerType(), "rescued": StringType(), "key": StringType()}
    asked = ItemColumns.of(
        StructType([StructField(*x) for x in schema.items()]), ("rescued", "key")
    )
    odd = rf'{{"a":{text},"n":5,"pk":"\ud800"}}'
    (row,) = asked.batch([msgspec.Raw(odd.encode())], [("pk",)]).to_pylist()
    is_whole = kind == StringType() and value is not None
    rescued = None if is_whole else odd
    assert row == {"a": value, "n": 5, "rescued": rescued, "key": None}
