"""Searches over several ranges: their plans, and what clients make of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import hypothesis
import pytest
from azure.cosmos import CosmosClient
from hypothesis import strategies as st

from cosmos_emulator.query.plan import FEATURES, plan
from cosmos_emulator.testing import Account, account_in_thread
from emulator.tests.asking import CLIENTS, Opened
from emulator.tests.merging import fill
from emulator.tests.searching import Searched, searched_items, searches
from emulator.tests.test_query_functions import query_of, results
from emulator.tests.test_query_plan import FILTER

RANGES = (2, 5, 9)
HELD = [*searched_items(Random(2), 60)]
POLICIES: dict[str, Any] = {
    "vector_embedding_policy": {
        "vectorEmbeddings": [
            {
                "path": "/vector",
                "dataType": "float32",
                "dimensions": 4,
                "distanceFunction": "euclidean",
            }
        ]
    },
    "full_text_policy": {
        "defaultLanguage": "en-US",
        "fullTextPaths": [{"path": "/text", "language": "en-US"}],
    },
}
PARTS: tuple[list[dict[str, Any]], ...] = (
    [
        {"id": "a", "_rid": "a", "t": "red car", "v": [1, 0]},
        {"id": "b", "_rid": "b", "t": "car"},
    ],
    [{"id": "c", "_rid": "c", "t": "red red", "v": [1, 1]}, {"id": "d", "_rid": "d"}],
)


def test_the_nearest_of_each_range_are_merged_by_a_score() -> None:
    text = "SELECT TOP 3 c.id FROM c ORDER BY VectorDistance(c.v, [1, 0])"
    info = plan(query_of(text), FEATURES)["queryInfo"]
    assert info["hasNonStreamingOrderBy"] is True
    assert info["orderBy"] == ["Descending"]
    assert info["orderByExpressions"] == ["_VectorScore(c.v, [1, 0])"]
    rewritten = info["rewrittenQuery"].replace(FILTER, "true")
    assert [x["payload"] for x in results(rewritten, *PARTS[1])] == [{"id": "c"}]


def test_a_plan_of_ranks_asks_for_statistics_and_for_each_component() -> None:
    text = (
        "SELECT VALUE c.id FROM c WHERE c.id != 'z' ORDER BY RANK "
        "RRF(VectorDistance(c.v, @v), FullTextScore(c.t, 'red', @t), @w) OFFSET 1 LIMIT 70"
    )
    query = query_of(text, v=[1, 0], t="car", w=[1, -0.5])
    info = plan(query, FEATURES)["hybridSearchQueryInfo"]
    asked = info["globalStatisticsQuery"].replace("@t", "'car'")
    assert results(asked, *PARTS[0]) == [
        {
            "documentCount": 2,
            "fullTextStatistics": [{"totalWordCount": 3, "hitCounts": [1, 2]}],
        }
    ]
    assert (info["skip"], info["take"], info["requiresGlobalStatistics"]) == (1, 70, True)
    assert info["componentWeights"] == [1.0, 0.5]
    nearest, rarest = info["componentQueryInfos"]
    assert (nearest["orderBy"], rarest["orderBy"]) == (["Descending"], ["Ascending"])
    assert (nearest["top"], nearest["hasNonStreamingOrderBy"]) == (142, True)
    assert "(c.id != 'z') AND IS_DEFINED(c.id)" in rarest["rewrittenQuery"]


@pytest.mark.parametrize(
    ("rank", "missing"),
    [
        ("ORDER BY VectorDistance(c.v, [1])", "NonStreamingOrderBy"),
        ("ORDER BY RANK FullTextScore(c.t, 'a')", "HybridSearch"),
        (
            "ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.u, 'a'), [1, 2])",
            "WeightedRankFusion",
        ),
    ],
)
def test_what_a_client_cannot_merge_is_refused_by_name(rank: str, missing: str) -> None:
    query = query_of(f"SELECT TOP 1 * FROM c {rank}")
    with pytest.raises(Exception, match=missing):
        plan(query, [x for x in FEATURES if x != missing])


@contextmanager
def filled_account() -> Iterator[Account]:
    """Give an account with the same items in containers of one range, and of several."""
    with account_in_thread() as account, CosmosClient(account.url, account.key) as client:
        database = client.create_database("d")
        for ranges in (1, *RANGES):
            held = ({k: v for k, v in x.items() if k != "_rid"} for x in HELD)
            fill(account, database, f"c{ranges}", held, ranges, **POLICIES)
        yield account


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with filled_account() as made:
        yield made


@pytest.mark.parametrize("opened", CLIENTS)
def test_what_a_client_merges_is_what_one_range_finds(opened: Opened, account: Account) -> None:
    with opened(account) as ask, CosmosClient(account.url, account.key) as client:
        one = client.get_database_client("d").get_container_client("c1")
        (everything,) = one.read_feed_ranges()

        @hypothesis.settings(max_examples=100, derandomize=True)
        @hypothesis.given(searches(HELD, "euclidean"), st.sampled_from(RANGES))
        def is_right(asked: Searched, ranges: int) -> None:
            given = asked.parameters
            alone = list(one.query_items(asked.text, parameters=given, feed_range=everything))
            assert asked.found(alone) == asked.best
            assert asked.found(ask(f"c{ranges}", asked.text, asked.parameters)) == asked.best

        is_right()
