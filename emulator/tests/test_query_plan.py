"""Query plans: what a client is to ask each range, and how to merge what they answer."""

from typing import Any

import pytest

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.query.plan import FEATURES, plan
from emulator.tests.test_query_functions import query_of, results

FILTER = "{documentdb-formattableorderbyquery-filter}"
PARTS: tuple[list[dict[str, Any]], ...] = (
    [{"id": "a", "pk": "x", "n": 3}, {"id": "b", "pk": "y", "n": 1}],
    [{"id": "c", "pk": "x", "n": 2}, {"id": "d", "pk": "z"}],
)


def info(text: str, **parameters: Any) -> dict[str, Any]:
    query = query_of(text, **parameters)
    found: dict[str, Any] = plan(query, FEATURES)["queryInfo"]
    return found


@pytest.mark.parametrize(
    ("text", "rewritten"),
    [
        ("SELECT * FROM c WHERE c.n > 1", ""),
        ("SELECT TOP 2 * FROM c", "SELECT TOP 2 * FROM c"),
        ("SELECT TOP @n * FROM c", "SELECT TOP 7 * FROM c"),
        (
            "SELECT c.id FROM c OFFSET 2 LIMIT 3",
            'SELECT VALUE {"id": c.id} FROM c OFFSET 0 LIMIT 5',
        ),
        ("SELECT DISTINCT VALUE c.pk FROM c", "SELECT DISTINCT VALUE c.pk FROM c"),
        (
            "SELECT * FROM r WHERE r.n > 1 ORDER BY r.n DESC",
            (
                'SELECT r._rid, [{"item": r.n}] AS orderByItems, r AS payload FROM r '
                f"WHERE (r.n > 1) AND ({FILTER}) ORDER BY r.n DESC"
            ),
        ),
        (
            "SELECT TOP 3 VALUE c.id FROM c ORDER BY c.pk, c.n",
            (
                'SELECT TOP 3 c._rid, [{"item": c.pk}, {"item": c.n}] AS orderByItems, '
                f"c.id AS payload FROM c WHERE IS_DEFINED(c.id) AND ({FILTER}) "
                "ORDER BY c.pk ASC, c.n ASC"
            ),
        ),
        (
            "SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags ORDER BY c.n",
            (
                'SELECT DISTINCT c._rid, [{"item": c.n}] AS orderByItems, t AS payload '
                f"FROM c JOIN t IN c.tags WHERE IS_DEFINED(t) AND ({FILTER}) ORDER BY c.n ASC"
            ),
        ),
        ("SELECT VALUE COUNT(1) FROM c", 'SELECT VALUE [{"item": COUNT(1)}] FROM c'),
        (
            "SELECT VALUE AVG(c.n) FROM c",
            'SELECT VALUE [{"item": {"sum": SUM(c.n), "count": COUNT(c.n)}}] FROM c',
        ),
        (
            "SELECT MAX(c.n) AS m FROM c",
            'SELECT {"m": {"item": {"max": MAX(c.n), "count": COUNT(c.n)}}} AS payload FROM c',
        ),
        (
            "SELECT c.pk, SUM(c.n) AS s FROM c GROUP BY c.pk",
            (
                'SELECT [{"item": c.pk}] AS groupByItems, '
                '{"pk": c.pk, "s": {"item": SUM(c.n)}} AS payload FROM c GROUP BY c.pk'
            ),
        ),
    ],
)
def test_a_plan_rewrites_a_query_to_what_each_range_answers(text: str, rewritten: str) -> None:
    assert info(text, n=7)["rewrittenQuery"] == rewritten
    if rewritten:
        results(rewritten.replace(FILTER, "true"), *PARTS[0])  # it can be run, too


def test_a_plan_says_what_the_client_does_with_the_answers() -> None:
    found = info("SELECT c.pk, SUM(c.n) AS s FROM c GROUP BY c.pk")
    assert found["groupByExpressions"] == ["c.pk"]
    assert found["groupByAliases"] == ["pk", "s"]
    assert found["groupByAliasToAggregateType"] == {"pk": None, "s": "Sum"}
    assert found["aggregates"] == []
    assert info("SELECT VALUE AVG(c.n) FROM c")["aggregates"] == ["Average"]
    assert info("SELECT TOP 4 * FROM c")["top"] == 4
    skipping = info("SELECT * FROM c ORDER BY c.n DESC OFFSET 2 LIMIT 3")
    assert (skipping["offset"], skipping["limit"]) == (2, 3)
    assert (skipping["orderBy"], skipping["orderByExpressions"]) == (["Descending"], ["c.n"])
    assert info("SELECT DISTINCT c.pk FROM c")["distinctType"] == "Unordered"
    assert info("SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n")["distinctType"] == "Ordered"


def test_an_aggregate_inside_another_expression_has_no_plan() -> None:
    with pytest.raises(CosmosError, match="aggregate"):
        info("SELECT VALUE COUNT(1) + 1 FROM c")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT DISTINCT c.pk FROM c ORDER BY c.n OFFSET 1 LIMIT 2",
        "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk OFFSET 1 LIMIT 2",
        "SELECT DISTINCT TOP 2 c.pk FROM c ORDER BY c.n",
    ],
)
def test_a_range_is_not_cut_short_before_the_client_has_dropped_what_is_twice(
    text: str,
) -> None:
    rewritten = info(text)["rewrittenQuery"].replace(FILTER, "true")
    many = [{"_rid": str(x), "pk": "same", "n": x} for x in range(5)]
    assert len(results(rewritten, *many)) == 5
    assert "top" not in info(text)  # a client that knows TOP reads no more rows of a range


def test_extremes_are_plain_unless_the_client_announces_several_aggregates() -> None:
    query = query_of("SELECT VALUE MIN(c.n) FROM c")
    plain = plan(query, ["Aggregate"])["queryInfo"]["rewrittenQuery"]
    assert plain == 'SELECT VALUE [{"item": MIN(c.n)}] FROM c'


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", "GroupBy"),
        ("SELECT COUNT(1) AS n FROM c", "NonValueAggregate"),
        ("SELECT TOP 1 * FROM c", "Top"),
        ("SELECT * FROM c ORDER BY c.a, c.b", "MultipleOrderBy"),
        ("SELECT DISTINCT VALUE c.a FROM c", "Distinct"),
        ("SELECT * FROM c OFFSET 1 LIMIT 1", "OffsetAndLimit"),
    ],
)
def test_what_the_client_does_not_announce_is_refused_by_name(text: str, missing: str) -> None:
    query = query_of(text)
    with pytest.raises(CosmosError, match=missing) as refused:
        plan(query, ["Aggregate"])
    assert (refused.value.status, refused.value.substatus) == (400, 0)
