"""The functions of queries, held against the list that Cosmos DB publishes and its examples."""

from typing import Any

import msgspec
import pytest

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.functions import FUNCTIONS
from cosmos_emulator.query.run import Query, parsed, run

NOW = 1_584_000_000.25
PUBLISHED = {
    "array": "ARRAY_CONCAT ARRAY_CONTAINS ARRAY_CONTAINS_ALL ARRAY_CONTAINS_ANY ARRAY_LENGTH "
    "ARRAY_SLICE CHOOSE OBJECTTOARRAY SETINTERSECT SETUNION",
    "conditional": "IIF",
    "date": "DATETIMEADD DATETIMEBIN DATETIMEDIFF DATETIMEFROMPARTS DATETIMEPART "
    "DATETIMETOTICKS DATETIMETOTIMESTAMP GETCURRENTDATETIME GETCURRENTDATETIMESTATIC "
    "GETCURRENTTICKS GETCURRENTTICKSSTATIC GETCURRENTTIMESTAMP GETCURRENTTIMESTAMPSTATIC "
    "TICKSTODATETIME TIMESTAMPTODATETIME",
    "item": "DOCUMENTID",
    "search": "FULLTEXTCONTAINS FULLTEXTCONTAINSALL FULLTEXTCONTAINSANY VECTORDISTANCE",
    "math": "ABS ACOS ASIN ATAN ATN2 CEILING COS COT DEGREES EXP FLOOR INTADD INTBITAND "
    "INTBITLEFTSHIFT INTBITNOT INTBITOR INTBITRIGHTSHIFT INTBITXOR INTDIV INTMOD INTMUL INTSUB "
    "LOG LOG10 NUMBERBIN PI POWER RADIANS RAND ROUND SIGN SIN SQRT SQUARE TAN TRUNC",
    "string": "CONCAT CONTAINS ENDSWITH INDEX_OF LEFT LENGTH LOWER LTRIM REGEXMATCH REPLACE "
    "REPLICATE REVERSE RIGHT RTRIM STARTSWITH STRINGEQUALS STRINGJOIN STRINGSPLIT "
    "STRINGTOARRAY STRINGTOBOOLEAN STRINGTONULL STRINGTONUMBER STRINGTOOBJECT SUBSTRING "
    "TOSTRING TRIM UPPER",
    "type": "IS_ARRAY IS_BOOL IS_DEFINED IS_FINITE_NUMBER IS_INTEGER IS_NULL IS_NUMBER "
    "IS_OBJECT IS_PRIMITIVE IS_STRING",
}
REFUSED = (
    "ST_AREA ST_DISTANCE ST_INTERSECTS ST_ISVALID ST_ISVALIDDETAILED ST_WITHIN NOSUCHFUNCTION"
)
DAY = "2020-07-03T00:00:00.0000000"
SECOND = "2016-05-29T08:30:00.1301617"


def results(text: str, *items: dict[str, Any], **parameters: Any) -> list[Any]:
    """Run a query over items, and return all that it finds."""
    rows = [(n, msgspec.json.encode(x)) for n, x in enumerate(items, 1)]
    page = run(
        lambda after: rows[after:], query_of(text, **parameters), limit=1000, continuation=None
    )
    return [msgspec.json.decode(x) for x in page.results]


def query_of(text: str, **parameters: Any) -> Query:
    given = [{"name": f"@{k}", "value": v} for k, v in parameters.items()]
    return parsed({"query": text, "parameters": given}, now=NOW, budget=Budget(60))


def value(expression: str) -> Any:
    """Evaluate an expression; ``None`` stands for undefined."""
    found = results(f"SELECT VALUE {expression} FROM c", {"id": "1"})
    return found[0] if found else None


@pytest.mark.parametrize("kind", PUBLISHED)
def test_every_function_that_is_published_is_there(kind: str) -> None:
    assert set(PUBLISHED[kind].split()) <= FUNCTIONS.keys()


@pytest.mark.parametrize("name", REFUSED.split())
def test_a_function_that_is_missing_is_refused_by_name(name: str) -> None:
    with pytest.raises(CosmosError, match=f"The function {name} in a query is not supported"):
        value(f"{name}(c.a)")


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        (f'DateTimeAdd("yyyy", 1, "{DAY}")', "2021-07-03T00:00:00.0000000Z"),
        (f'DateTimeAdd("mm", -1, "{DAY}")', "2020-06-03T00:00:00.0000000Z"),
        (f'DateTimeAdd("hh", -1, "{DAY}")', "2020-07-02T23:00:00.0000000Z"),
        (f'DateTimeAdd("ss", 5 * -5, "{DAY}")', "2020-07-02T23:59:35.0000000Z"),
        ('DateTimeAdd("m", 1, "2020-01-31T01:02:03.0000004Z")', "2020-02-29T01:02:03.0000004Z"),
        ('DateTimeAdd("ns", 150, "2020-01-01T00:00:00Z")', "2020-01-01T00:00:00.0000001Z"),
        ('DateTimeAdd("yy", 9000, "2020-01-01T00:00:00Z")', None),
        (f'DateTimeAdd("eon", 1, "{DAY}")', None),
        (f'DateTimeAdd("dd", 0.5, "{DAY}")', None),
        ('DateTimeDiff("yyyy", "2019-02-04T16:00:00", "2018-03-05T05:00:00")', -1),
        ('DateTimeDiff("mm", "2018-03-05T05:00:00", "2019-02-04T16:00:00")', 11),
        ('DateTimeDiff("dd", "2018-03-05T05:00:00", "2019-02-04T16:00:00")', 336),
        ('DateTimeDiff("hh", "2019-02-04T16:00:00", "2018-03-05T05:00:00")', -8075),
        ('DateTimeDiff("ss", "2018-03-05T05:00:00", "2019-02-04T16:00:00")', 29_070_000),
        ('DateTimeDiff("dd", "2020-01-01T23:59:59.9999999Z", "2020-01-02T00:00:00Z")', 1),
        ('DateTimeDiff("dd", "2020-01-01", "yesterday")', None),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "dd")', "2021-01-08T00:00:00.0000000Z"),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "hh")', "2021-01-08T18:00:00.0000000Z"),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "hh", 5)', "2021-01-08T15:00:00.0000000Z"),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "dd", 7)', "2021-01-07T00:00:00.0000000Z"),
        (
            'DateTimeBin("2021-01-08T18:35:00", "dd", 7, "1601-01-01T00:00:00.0000000")',
            "2021-01-04T00:00:00.0000000Z",
        ),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "mm")', None),
        ('DateTimeBin("2021-01-08T18:35:00.0000000", "dd", 0)', None),
        (f'DateTimePart("yyyy", "{SECOND}")', 2016),
        (f'DateTimePart("month", "{SECOND}")', 5),
        (f'DateTimePart("MI", "{SECOND}")', 30),
        (f'DateTimePart("ms", "{SECOND}")', 130),
        (f'DateTimePart("mcs", "{SECOND}")', 130_161),
        (f'DateTimePart("ns", "{SECOND}")', 130_161_700),
        ("DateTimeFromParts(2017, 4, 20)", "2017-04-20T00:00:00.0000000Z"),
        (
            "DateTimeFromParts(2017, 4, 20, 13, 15, 20, 3456789)",
            "2017-04-20T13:15:20.3456789Z",
        ),
        ("DateTimeFromParts(2017, 4, 20, 13, 15)", "2017-04-20T13:15:00.0000000Z"),
        ("DateTimeFromParts(-2000, -1, -1)", None),
        ('DateTimeToTicks("2020-01-02T03:04:05.6789123Z")', 15_779_342_456_789_123),
        ('DateTimeToTimestamp("2020-07-09T23:20:13.4575530Z")', 1_594_336_813_457),
        ("TicksToDateTime(15943368134575530)", "2020-07-09T23:20:13.4575530Z"),
        ("TimestampToDateTime(1594227912345)", "2020-07-08T17:05:12.3450000Z"),
        ("TicksToDateTime(1e30)", None),
        ("TimestampToDateTime(-62135596800000)", "0001-01-01T00:00:00.0000000Z"),
        ("GetCurrentDateTime()", "2020-03-12T08:00:00.2500000Z"),
        ("GetCurrentTimestamp()", 1_584_000_000_250),
        ("GetCurrentTicksStatic()", 15_840_000_002_500_000),
    ],
)
def test_dates_give_what_cosmos_db_says_they_give(expression: str, wanted: Any) -> None:
    assert value(expression) == wanted


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("IntBitRightShift(16, 4)", 1),
        ("IntBitRightShift(16, 0.4)", None),
        ("IntBitLeftShift(16, 4)", 256),
        ("IntBitAnd(15, 25)", 9),
        ("IntBitOr(56, 100)", 124),
        ("IntBitXor(56, 100)", 92),
        ("IntBitNot(65)", -66),
        ("IntAdd(9223372036854775807, 1)", -(2**63)),
        ("IntSub(20, 10)", 10),
        ("IntMul(5, 2)", 10),
        ("IntDiv(-7, 2)", -3),
        ("IntDiv(1, 0)", None),
        ("IntMod(-12, 5)", -2),
        ("NumberBin(37.752, 10)", 30),
        ("NumberBin(37.752, 0.1)", 37.7),
        ("NumberBin(-5.5)", -6),
        ("NumberBin(1, 0)", None),
        ("ATN2(35.175643, 129.44)", 0.265344532064832),
        ("COT(124.1332)", -0.040311998371148884),
        ("DEGREES(PI() / 2)", 90),
        ("ACOS(2)", None),
        ("RAND() < 1 AND RAND() >= 0", True),
        ('Choose(1, "abc", 1)', "abc"),
        ('Choose(3, "abc", 1)', None),
        ('StringJoin(["6", "7"], "A")', "6A7"),
        ('StringJoin(["6", 7], "A")', None),
        ('StringSplit("xenmoun mountain bike", "moun")', ["xen", " ", "tain bike"]),
        ('StringSplit("Helmet", "")', ["Helmet"]),
        ('DocumentId({_rid: "Sl8fALN4sw4CAAAAAAAAAA=="})', 2),
        ("DocumentId(c)", None),
    ],
)
def test_numbers_texts_and_arrays_give_what_cosmos_db_says_they_give(
    expression: str, wanted: Any
) -> None:
    found = value(expression)
    assert found == (pytest.approx(wanted) if isinstance(wanted, float) else wanted)


def test_a_date_of_the_current_time_is_one_that_a_condition_can_compare() -> None:
    items = [{"id": "old", "at": "2020-03-11"}, {"id": "new", "at": "2020-03-13"}]
    text = "SELECT VALUE c.id FROM c WHERE c.at < GetCurrentDateTime()"
    assert results(text, *items) == ["old"]
