"""A query in the place of the container: FROM (SELECT …)."""

from typing import Any

import pytest

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.query.plan import FEATURES, plan
from emulator.tests.test_query_functions import query_of, results

ITEMS: list[dict[str, Any]] = [
    {"id": "a", "n": 3, "tags": ["x", "y"]},
    {"id": "b", "n": 1, "tags": ["y"]},
    {"id": "c", "n": 2},
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT VALUE s.id FROM (SELECT c.id FROM c WHERE c.n > 1) AS s", ["a", "c"]),
        ("SELECT * FROM (SELECT VALUE r.n FROM r) n WHERE n < 3", [1, 2]),
        ("SELECT VALUE COUNT(1) FROM (SELECT VALUE t FROM t IN c.tags) AS t", [3]),
        ("SELECT VALUE n FROM (SELECT VALUE COUNT(1) FROM c) AS n", [3]),
        ("SELECT VALUE x.id FROM (SELECT TOP 2 * FROM c ORDER BY c.n) AS x", ["b", "c"]),
        (
            "SELECT DISTINCT VALUE t FROM (SELECT VALUE c FROM c) AS d JOIN t IN d.tags",
            ["x", "y"],
        ),
        (
            "SELECT g.t, COUNT(1) AS n FROM (SELECT t FROM c JOIN t IN c.tags) g GROUP BY g.t",
            [{"t": "x", "n": 1}, {"t": "y", "n": 2}],
        ),
        (
            "SELECT VALUE u FROM (SELECT VALUE s.n FROM (SELECT c.n FROM c) s) u ORDER BY u",
            [1, 2, 3],
        ),
        (
            "SELECT VALUE (SELECT VALUE MAX(y) FROM (SELECT VALUE t FROM t IN d.tags)y) FROM d",
            ["y", "y"],
        ),
    ],
)
def test_a_query_over_a_query_sees_what_the_inner_one_found(
    text: str, found: list[Any]
) -> None:
    assert results(text, *ITEMS) == found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT VALUE c.id FROM (SELECT c.id FROM c) AS s",
        "SELECT VALUE s.id FROM (SELECT s.id FROM c) AS s",
        "SELECT * FROM ('c') AS s",
        "SELECT * FROM (SELECT * FROM c AS s",
    ],
)
def test_names_of_the_one_query_are_not_those_of_the_other(text: str) -> None:
    with pytest.raises(CosmosError) as refused:
        results(text, *ITEMS)
    assert refused.value.status == 400


def test_a_client_that_merges_ranges_may_not_merge_what_each_has_put_together() -> None:
    simple = query_of("SELECT VALUE s FROM (SELECT VALUE c.n FROM c) AS s")
    assert plan(simple, FEATURES)["queryInfo"]["rewrittenQuery"] == ""
    counted = query_of("SELECT * FROM (SELECT VALUE COUNT(1) FROM c) AS s")
    with pytest.raises(CosmosError, match="FROM over a subquery with an order, an aggregate"):
        plan(counted, FEATURES)
