"""Bodies of every kind, parsed in Spark: nothing stops a query, and nothing is lost."""

import json
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from changefeed.pipeline.body_shape import body_schema_of
from changefeed.pipeline.source.body_schema import with_bodies
from changefeed.runtime.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


SCHEMA = (
    "a INT, b STRING, t DATE, l ARRAY<INT>, n STRUCT<x: INT, in: STRUCT<y: INT>>, "
    "o ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>, `x.y` INT, v VARIANT"
)
LONG = "9" * 2000
DEEP = "[" * 3000 + "]" * 3000


def parsed(spark: "SparkSession", bodies: Sequence[str | None], schema: str) -> "list[Row]":
    rows = spark.createDataFrame(list(enumerate(bodies)), "at INT, body STRING").coalesce(1)
    return with_bodies(rows, schema).orderBy("at").collect()


def given(row: "Row") -> Any:
    """Return what the schema found, without what is null."""
    if row.value is None:
        return None
    return {
        name: str(x) if name in ("t", "v") else x
        for name, x in row.value.asDict(recursive=True).items()
        if x is not None
    }


def test_a_body_that_does_not_fit_a_schema_is_rescued_whole_and_keeps_what_fits(
    spark: "SparkSession",
) -> None:
    whole: list[tuple[str | None, Any]] = [
        ('{"a": 1, "b": "x"}', {"a": 1, "b": "x"}),
        ('{"b": 5}', {"b": "5"}),
        ('{"b": {"z": [1]}}', {"b": '{"z":[1]}'}),
        ('{"a": null, "n": null, "o": null}', {}),
        ("{}", {}),
        ('{"t": "2020-01-31"}', {"t": "2020-01-31"}),
        ('{"n": {"x": 1, "in": {"y": 2}}}', {"n": {"x": 1, "in": {"y": 2}}}),
        ('{"o": [{"x": 1}, null]}', {"o": [{"x": 1}, None]}),
        ('{"m": {"k": {"x": 1}}}', {"m": {"k": {"x": 1}}}),
        ('{"x.y": 1}', {"x.y": 1}),
        ('{"v": [1, {"w": 2}]}', {"v": '[1,{"w":2}]'}),
        (None, None),
    ]
    whole += [
        ('{"a": 1, "z": {"y": [1]}}', {"a": 1}),
        ('{"A": 1}', {}),
        ('{"n": {"x": 1, "q": 2}}', {"n": {"x": 1, "in": None}}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 1} {"a": 2}', {"a": 1}),
        ("", None),
    ]
    partly: list[tuple[str, Any]] = [
        ('{"a": "1", "b": "x"}', {"b": "x"}),
        ('{"a": 1.5}', {}),
        ('{"a": 12345678901234567890}', {}),
        ('{"t": "2020-13-31"}', {}),
        ('{"l": [1, "x"]}', {}),
        ('{"n": [1]}', {}),
        ('{"n": {"x": 1, "in": {"y": "s"}}}', {"n": {"x": 1, "in": {"y": None}}}),
    ]
    no_objects = ["[1]", '[{"a": 1}]', "5", "null", '"text"', "no JSON", '{"a": 1', "NaN", DEEP]
    no_objects += ['\ufeff{"a": 1}', '{"a": 1,}', f'{{"a": {LONG}}}', f'{{"z": {DEEP}}}', "\0"]
    expected = [
        *((body, value, None) for body, value in whole),
        *((body, value, body) for body, value in partly),
        *((body, {}, body) for body in no_objects),
    ]
    rows = parsed(spark, [body for body, _, _ in expected], SCHEMA)
    assert [(x.body, given(x), x.rescued) for x in rows] == expected


SCALARS = (
    *(None, True, False, 0, 1, -7, 2**31 - 1, 2**31, 10**18, 10**30, 0.5, -1.25, 1e10),
    *("", "text", "1", "2020-01-31", '"', "ß\u2028\n", "null"),
)


def a_value(random: Random, depth: int = 2) -> Any:
    kind = random.randrange(4) if depth else 0
    if kind == 2:
        return [a_value(random, depth - 1) for _ in range(random.randrange(3))]
    if kind == 3:
        return {name: a_value(random, depth - 1) for name in random.sample("abxyz", 2)}
    return random.choice(SCALARS)


def fits(name: str, value: Any) -> bool:
    """The model: what Spark's reader of JSON takes for the three columns below."""
    if value is None or name == "b":
        return True
    whole = isinstance(value, int) and not isinstance(value, bool)
    return name == "a" and whole and -(2**31) <= value < 2**31


def test_each_field_of_any_object_is_found_in_the_value_or_its_text_is_rescued(
    spark: "SparkSession",
) -> None:
    random = Random(5)
    objects = [
        {name: a_value(random) for name in random.sample("abcxy", random.randrange(6))}
        for _ in range(400)
    ]
    rows = parsed(spark, [json.dumps(x) for x in objects], "a INT, b STRING")
    for body, row in zip(objects, rows, strict=True):
        misfits = [k for k in ("a", "b") if not fits(k, body.get(k))]
        assert row.rescued == (json.dumps(body) if misfits else None)
        number = body.get("a")
        assert row.value.a == (number if fits("a", number) else None)
        text = body.get("b")
        if text is None or isinstance(text, str):
            assert row.value.b == text
        else:
            assert json.loads(row.value.b) == text


def test_what_a_schema_was_judged_by_is_rescued_only_where_that_was_told(
    spark: "SparkSession",
) -> None:
    random = Random(5)
    bodies = [json.dumps({f"f{n}": a_value(random, depth=3)}) for n in range(300)]
    bodies += ['{"from": {"left": 1, "a b": [{"`": 1}]}, "9": true, "ü.$": 1.5, "e": {}}']
    found = body_schema_of(bodies)
    told = {x.path.split(".")[1].partition("[")[0] for x in found.misfits}
    assert 0 < len(told) < 100
    rows = parsed(spark, bodies, found.body_schema)
    assert {next(iter(json.loads(x.rescued))) for x in rows if x.rescued} == told


def test_a_variant_has_whatever_is_json_and_the_rest_is_rescued(spark: "SparkSession") -> None:
    fine = ['{"a": [1, null]}', "5", "null", '"text"']
    wrong = ["no JSON", '{"a": 1, "a": 2}', DEEP, "{"]
    rows = parsed(spark, [*fine, *wrong, None], "VARIANT")
    assert [json.loads(x.value.toJson()) for x in rows[:4]] == [json.loads(x) for x in fine]
    assert [x.value for x in rows[4:]] == [None] * 5
    assert [x.rescued for x in rows] == [*([None] * 4), *wrong, None]


@pytest.mark.parametrize("schema", ["", "n", "INT", "n INT,,", "n SOMETHING", "n INT, n INT"])
def test_a_schema_that_is_none_is_refused(spark: "SparkSession", schema: str) -> None:
    with pytest.raises(UserError, match="neither 'variant' nor columns as in"):
        parsed(spark, ["{}"], schema)


def test_bodies_that_were_left_out_are_missed(spark: "SparkSession") -> None:
    with pytest.raises(UserError, match="no column 'body' to parse"):
        with_bodies(spark.range(1), "n INT")
