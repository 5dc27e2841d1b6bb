"""Queries: what they find, and what is refused with advice."""

from typing import Any

import msgspec
import pytest
from azure.cosmos.aio import ContainerProxy

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, hand

ITEMS: list[dict[str, Any]] = [
    {"id": "a1", "pk": "x", "n": 3, "tags": ["red", "blue"], "in": {"a": 1}},
    {"id": "a2", "pk": "x", "n": 1, "s": "Quo'te"},
    {"id": "b1", "pk": "y", "n": "text", "s": None},
    {"id": "b2", "pk": "y", "n": 2.5, "flag": True},
    {"id": "c", "pk": "z"},
]


async def fill(by_hand: Hand) -> None:
    for item in ITEMS:
        made = await by_hand.send("POST", DOCS, item, key=item["pk"])
        assert made.status == 201


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("STARTSWITH(c.id, 'a')", ["a1", "a2"]),
        ("startswith(c.id, @p)", ["b1", "b2"]),
        ("STARTSWITH(c.id, 'A', true)", ["a1", "a2"]),
        ("c.n > 1", ["a1", "b2"]),
        ("c.n >= 1 AND c.n <= 2.5", ["a2", "b2"]),
        ("c.n BETWEEN 1 AND 2.5", ["a2", "b2"]),
        ("c.n != 3", ["a2", "b2"]),
        ("NOT (c.n = 3)", ["a2", "b2"]),
        ("c.n <> 'text' OR c.flag", ["b2"]),
        ("IS_DEFINED(c.n)", ["a1", "a2", "b1", "b2"]),
        ("NOT IS_DEFINED(c.n)", ["c"]),
        ("c.s = null", ["b1"]),
        ("IS_NULL(c.s)", ["b1"]),
        ("c.flag = true", ["b2"]),
        ("c.flag", ["b2"]),
        ("c.in.a = 1", ["a1"]),
        ("c['in']['a'] = 1", ["a1"]),
        ("c.tags[1] = 'blue'", ["a1"]),
        ("c.tags = ['red', 'blue']", ["a1"]),
        ("c['in'] = {a: 1}", ["a1"]),
        ("ARRAY_CONTAINS(c.tags, 'red')", ["a1"]),
        ("c.id IN ('a1', 'c')", ["a1", "c"]),
        ("c.id NOT IN ('a1', 'c')", ["a2", "b1", "b2"]),
        ("c.s = 'Quo\\'te'", ["a2"]),
        ('c.s = "Quo\'te"', ["a2"]),
        ("CONTAINS(c.s, 'o') AND ENDSWITH(c.s, 'te')", ["a2"]),
        ("LOWER(c.id) = 'c' AND LENGTH(c.id) = 1", ["c"]),
        ("c.n + 1 = 4 OR c.n * 2 = 5", ["a1", "b2"]),
        ("c.pk || c.id = 'xa2'", ["a2"]),
        ("c.n = 3 OR c.pk = 'x' AND c.n = 1", ["a1", "a2"]),
        ("-c.n < -2.6", ["a1"]),
        ("c.none = c.none", []),
        ("c.n < 'zzz'", ["b1"]),
        ("IS_NUMBER(c.n) AND NOT IS_STRING(c.n)", ["a1", "a2", "b2"]),
        ("c.id LIKE 'a%'", ["a1", "a2"]),
        ("c.id LIKE '_1'", ["a1", "b1"]),
        ("c.id LIKE '[^a]_'", ["b1", "b2"]),
        ("c.id NOT LIKE '%1'", ["a2", "b2", "c"]),
        ("c.id LIKE '!a1' ESCAPE '!'", ["a1"]),
        ("EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 'red')", ["a1"]),
        ("ARRAY_CONTAINS_ALL(c.tags, 'red', 'blue')", ["a1"]),
        ("SUBSTRING(c.id, 1, 5) = '1'", ["a1", "b1"]),
        ("REGEXMATCH(c.id, '^[AB]1$', 'i')", ["a1", "b1"]),
        ("CONCAT(c.pk, '-', c.id) = 'z-c'", ["c"]),
        ("FLOOR(c.n) = 2 AND CEILING(c.n) = 3 AND ROUND(c.n) = 3", ["b2"]),
        ("StringToNumber(RIGHT(c.id, 1)) = 2", ["a2", "b2"]),
        ("POWER(c.n, 2) = 9 AND ABS(-c.n) = 3 AND SQRT(c.n * 3) = 3", ["a1"]),
        ("INDEX_OF(c.id, '2') = 1 AND TOSTRING(c.n) = '1'", ["a2"]),
    ],
)
async def test_a_condition_finds_what_cosmos_db_would_find(
    by_hand: Hand, where: str, found: list[str]
) -> None:
    await fill(by_hand)
    got = await by_hand.query(f"SELECT * FROM c WHERE {where}", p="b")
    assert got.status == 200, got.body
    assert sorted(got.ids) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT VALUE c.id FROM c WHERE c.pk = 'x'", ["a1", "a2"]),
        ("SELECT c.id, c.n AS number FROM c WHERE c.id = 'a1'", [{"id": "a1", "number": 3}]),
        ("SELECT c.none, c.n + 1 FROM c WHERE c.id = 'a1'", [{"$2": 4}]),
        (
            "SELECT VALUE {k: c.id, l: [c.n, c.none]} FROM c WHERE c.n = 3",
            [{"k": "a1", "l": [3]}],
        ),
        ("SELECT VALUE COUNT(1) FROM c", [5]),
        ("SELECT VALUE COUNT(1) FROM c ORDER BY c.n DESC", [5]),
        ("SELECT COUNT(c.n) AS n FROM c", [{"n": 4}]),
        ("SELECT VALUE COUNT(1) FROM c WHERE false", [0]),
        ("SELECT VALUE COUNT(1) FROM c ORDER BY c.n", [5]),
        ("SELECT VALUE x.id FROM root AS x ORDER BY x.n", ["c", "a2", "b2", "a1", "b1"]),
        ("SELECT VALUE r.id FROM r ORDER BY r.n DESC", ["b1", "a1", "b2", "a2", "c"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.pk DESC, c.id", ["c", "b1", "b2", "a1", "a2"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 1 LIMIT 2", ["a2", "b1"]),
        ("SELECT VALUE c.id FROM c ORDER BY c.id OFFSET @o LIMIT @l", ["c"]),
        ("SELECT TOP 2 VALUE c.id FROM c ORDER BY c.id DESC", ["c", "b2"]),
        ("SELECT DISTINCT VALUE c.pk FROM c", ["x", "y", "z"]),
        ("SELECT DISTINCT VALUE x FROM c JOIN x IN [1, 1.0, true] WHERE c.n = 1", [1, True]),
        ("SELECT DISTINCT TOP 1 c.pk FROM c", [{"pk": "x"}]),
        ("SELECT DISTINCT VALUE [c.n, 1] FROM c WHERE c.pk = 'z' OR c.n = 1", [[1, 1], [1]]),
        (
            "SELECT VALUE [MIN(c.n), MAX(c.n), SUM(c.n)] FROM c WHERE IS_NUMBER(c.n)",
            [[1, 3, 6.5]],
        ),
        ("SELECT VALUE AVG(c.n) FROM c WHERE c.pk = 'x'", [2]),
        ("SELECT VALUE MAX(c.n) FROM c", ["text"]),
        ("SELECT VALUE SUM(c.n) FROM c", []),
        ("SELECT VALUE MIN(c.tags) FROM c", []),
        ("SELECT VALUE AVG(c.n) FROM c WHERE false", []),
        (
            "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk",
            [
                {"pk": "x", "n": 2},
                {"pk": "y", "n": 2},
                {"pk": "z", "n": 1},
            ],
        ),
        ("SELECT VALUE COUNT(1) FROM c GROUP BY c.pk OFFSET 1 LIMIT 9", [2, 1]),
        (
            "SELECT c.id, t FROM c JOIN t IN c.tags",
            [
                {"id": "a1", "t": "red"},
                {"id": "a1", "t": "blue"},
            ],
        ),
        ("SELECT VALUE t FROM t IN c.tags", ["red", "blue"]),
        ("SELECT VALUE i.a FROM c.in AS i", [1]),
        (
            "SELECT VALUE [s, t] FROM c JOIN s IN c.tags JOIN t IN c.tags WHERE s < t",
            [["blue", "red"]],
        ),
        (
            "SELECT VALUE x FROM c JOIN (SELECT VALUE t FROM t IN c.tags WHERE t < 'n') AS x",
            ["blue"],
        ),
        (
            "SELECT VALUE ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) FROM c WHERE c.n = 3",
            [["RED", "BLUE"]],
        ),
        ("SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags) FROM c WHERE c.n = 3", [2]),
        ("SELECT VALUE c.n > 2 ? 'big' : 'small' FROM c WHERE c.pk = 'x'", ["big", "small"]),
        (
            "SELECT VALUE c.s ?? 'none' FROM c WHERE c.pk IN ('x', 'y')",
            ["none", "Quo'te", None, "none"],
        ),
    ],
)
async def test_a_projection_and_an_order_give_what_was_asked(
    by_hand: Hand, text: str, found: list[Any]
) -> None:
    await fill(by_hand)
    got = await by_hand.query(text, o=4, l=9)
    assert got.status == 200, got.body
    assert got.body["Documents"] == found


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("SELECT c.id FROM c HAVING c.id", "HAVING"),
        (
            "SELECT c.tags[c.n] FROM c",
            "An index that is not a plain number, string or parameter",
        ),
        (
            "SELECT c.pk, COUNT(1) FROM c GROUP BY c.pk ORDER BY c.pk",
            "ORDER BY beside GROUP BY",
        ),
        ("SELECT ST_DISTANCE(c.a, c.b) FROM c", "The function ST_DISTANCE"),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name_with_what_it_can(
    by_hand: Hand, text: str, feature: str
) -> None:
    got = await by_hand.query(text)
    assert got.status == 400
    assert feature in got.body["message"]
    assert "in a query is not supported by this emulator" in got.body["message"]
    assert "It understands: SELECT" in got.body["message"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("SELECT * FROM c WHERE", "Syntax error, incorrect syntax near 'the end'"),
        ("SELECT * FROM", "Syntax error"),
        ("SELECT * FROM c WHERE c.id = @unknown", "@unknown, and no such parameter"),
        ("SELECT * FROM c WHERE id = 'a'", "Say c.id for its property"),
        (
            "SELECT * FROM c WHERE c.id = 'a' extra",
            "Syntax error, incorrect syntax near 'extra'",
        ),
        ("SELECT * FROM c WHERE c.id = 'open", "Syntax error"),
        ("SELECT * FROM c WHERE LOWER(c.id, 1)", "takes 1 to 1 arguments"),
        ("SELECT * FROM c OFFSET 'x' LIMIT 1", "must be a whole number"),
        ("SELECT COUNT(1) AS n, c.pk FROM c", "'c.pk' is selected beside groups"),
        ("SELECT c.id FROM c GROUP BY c.pk", "'c.id' is selected beside groups"),
        ("SELECT * FROM c WHERE COUNT(1) > 1", "An aggregate may only be selected"),
        ("SELECT * FROM c JOIN t IN c.tags", "only valid with a single input set"),
        ("SELECT * FROM c JOIN t IN d.tags", "Identifier 'd' could not be resolved"),
        ("SELECT c.id, c.id FROM c", "selected twice"),
        ("SELECT VALUE COUNT(SUM(c.n)) FROM c", "another aggregate"),
        ("SELECT * FROM c WHERE " + "(" * 3000 + "1", "nested too deeply"),
        ("SELECT * FROM c WHERE " + "c.a OR " * 3000 + "true", "500 of: OR"),
    ],
)
async def test_a_query_that_is_wrong_says_where(by_hand: Hand, text: str, advice: str) -> None:
    got = await by_hand.query(text)
    assert got.status == 400
    assert advice in got.body["message"]


@pytest.mark.parametrize(
    "order", ["", " WHERE c.id != 'c'", " ORDER BY c.id", " OFFSET 0 LIMIT 9"]
)
async def test_pages_chained_by_their_continuation_give_the_whole(
    by_hand: Hand, order: str
) -> None:
    await fill(by_hand)
    text = "SELECT * FROM c" + order
    whole = (await by_hand.query(text)).ids
    found, token, pages = [], None, 0
    while pages == 0 or token is not None:
        header = {
            "x-ms-documentdb-isquery": "True",
            "Content-Type": "application/query+json",
            "x-ms-documentdb-partitionkeyrangeid": "0",
            "x-ms-max-item-count": "2",
        } | ({"x-ms-continuation": token} if token else {})
        got = await by_hand.send("POST", DOCS, {"query": text}, header)
        assert len(got.ids) <= 2
        found += got.ids
        token, pages = got.headers.get("x-ms-continuation"), pages + 1
    assert found == whole
    assert pages <= len(whole) // 2 + 1  # a last page may be empty


async def test_a_query_stays_in_its_partition_key_and_needs_leave_to_cross(
    by_hand: Hand, items: ContainerProxy
) -> None:
    await fill(by_hand)
    own = [x["id"] async for x in items.query_items("SELECT * FROM c", partition_key="y")]
    assert own == ["b1", "b2"]
    header = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
    wide = await by_hand.send("POST", DOCS, {"query": "SELECT * FROM c"}, header)
    assert wide.status == 400
    assert "enablecrosspartition" in wide.body["message"]
    named = {"query": "SELECT * FROM c WHERE c.n > 1 AND c.pk = 'x'"}
    assert (await by_hand.send("POST", DOCS, named, header)).ids == ["a1"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM c ORDER BY c.n",
        "SELECT DISTINCT VALUE c.pk FROM c",
        "SELECT VALUE COUNT(1) FROM c",
        "SELECT TOP 1 * FROM c",
        "SELECT * FROM c OFFSET 1 LIMIT 1",
    ],
)
async def test_what_ranges_cannot_answer_for_themselves_is_left_to_the_client_with_a_plan(
    by_hand: Hand, text: str
) -> None:
    await fill(by_hand)
    refused = await by_hand.query_everywhere(text)
    assert (refused.status, refused.substatus) == (400, 1004)
    info = msgspec.json.decode(refused.body["additionalErrorInfo"])["queryInfo"]
    assert (await by_hand.query(text)).status == 200  # of one range
    assert info["rewrittenQuery"]
    simple = await by_hand.query_everywhere("SELECT VALUE c.id FROM c JOIN t IN c.tags")
    assert simple.body["Documents"] == ["a1", "a1"]


async def test_a_lenient_emulator_answers_for_all_ranges_at_once() -> None:
    async with running(EmulatorSettings(port=0, lenient=True)) as url, hand(url) as by_hand:
        await fill(by_hand)
        await by_hand.split()
        answer = await by_hand.query_everywhere(
            "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk"
        )
        assert sorted(x["n"] for x in answer.body["Documents"]) == [1, 2, 2]
