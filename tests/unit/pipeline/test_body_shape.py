"""The columns that bodies have, and what does not fit them."""

import pytest

from changefeed.pipeline.body_shape import body_schema_of
from changefeed.runtime.errors import UserError


def schema(*bodies: str) -> str:
    return body_schema_of(bodies).body_schema


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (("1", "2"), "BIGINT"),
        (("1", "2.5"), "DOUBLE"),
        (("1", "9223372036854775808"), "DECIMAL(38,0)"),
        (("-9223372036854775809",), "DECIMAL(38,0)"),
        (("9223372036854775808", "0.5"), "DOUBLE"),
        (("true",), "BOOLEAN"),
        (('"1"',), "STRING"),
        (("null", "1"), "BIGINT"),
        (("null",), "STRING"),
        (("{}",), "STRING"),
        (("[]",), "ARRAY<STRING>"),
        (("[1]", "[null, 2.5]"), "ARRAY<DOUBLE>"),
        (
            ('{"b": 1}', '{"c": [{"d": true}]}'),
            "STRUCT<b: BIGINT, c: ARRAY<STRUCT<d: BOOLEAN>>>",
        ),
        (('"x"', "1"), "STRING"),  # takes both, as text
    ],
)
def test_a_column_has_the_type_of_its_values(values: tuple[str, ...], column: str) -> None:
    found = body_schema_of(f'{{"a": {x}}}' for x in values)
    assert (found.body_schema, found.misfits) == (f"a {column}", [])


def test_columns_come_as_first_seen_and_a_name_that_is_no_word_is_quoted() -> None:
    assert schema('{"b": 1}', '{"a": 1, "b c": 2, "`": {"1": 0}}') == (
        "b BIGINT, a BIGINT, `b c` BIGINT, ```` STRUCT<`1`: BIGINT>"
    )


def test_most_decide_and_what_does_not_fit_is_told_with_its_place() -> None:
    many = ['{"a": 1, "b": {"c": [true]}}'] * 8
    few = ['{"a": "1", "b": {"c": [true, 1]}}', '{"a": null, "b": 5}', "[1]", "{"]
    found = body_schema_of([*many, *few])
    assert found.body_schema == "a BIGINT, b STRUCT<c: ARRAY<BOOLEAN>>"
    assert found.bodies == 12
    assert [(x.path, x.column, x.misfits, x.of, x.types) for x in found.misfits] == [
        ("$", "STRUCT", 2, 12, {"STRUCT": 10, "ARRAY": 1, "no JSON": 1}),
        ("$.a", "BIGINT", 1, 9, {"BIGINT": 8, "STRING": 1}),
        ("$.b", "STRUCT", 1, 10, {"STRUCT": 9, "BIGINT": 1}),
        ("$.b.c[*]", "BOOLEAN", 1, 10, {"BOOLEAN": 9, "BIGINT": 1}),
    ]


def test_of_names_that_differ_in_case_alone_one_is_a_column() -> None:
    found = body_schema_of(['{"id": 1, "ID": "x"}'])
    assert found.body_schema == "id BIGINT"
    assert [(x.path, x.column) for x in found.misfits] == [("$.ID", "")]


@pytest.mark.parametrize("depth", [50, 500, 100_000])
def test_what_is_nested_deep_is_text_or_no_json(depth: int) -> None:
    deep = "[" * depth + "]" * depth
    assert schema('{"a": 1}', f'{{"b": {deep}}}').startswith("a BIGINT")


@pytest.mark.parametrize(
    ("bodies", "named"),
    [((), "no bodies"), (("[1]", "5"), "1 ARRAY, 1 BIGINT"), (("{}",), "1 STRUCT")],
)
def test_bodies_without_fields_have_no_schema(bodies: tuple[str, ...], named: str) -> None:
    with pytest.raises(UserError, match=named):
        body_schema_of(bodies)
