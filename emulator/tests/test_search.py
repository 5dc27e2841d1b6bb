"""Vector and full-text search: what the functions say, and the order that they make."""

import math
import sys
from random import Random
from typing import Any

import hypothesis
import numpy as np
import pytest

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.query.fulltext import score
from cosmos_emulator.query.ranking import ranked
from emulator.tests.searching import VECTORS, Searched, distance, searched_items, searches
from emulator.tests.test_query_functions import results, value


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("VectorDistance([1, 0], [1, 1])", math.sqrt(0.5)),
        ("VectorDistance([1, 2], [3, 4], false, {distanceFunction: 'dotproduct'})", 11.0),
        ("VectorDistance([1, 2], [4, 6], true, {'distanceFunction': 'Euclidean'})", 5.0),
        ("VectorDistance([1, 2], [-1, -2.0])", -1.0),
        ("VectorDistance([0, 0], [1, 2])", 0.0),
        ("VectorDistance([1, 2], [1, 2, 3])", None),
        ("VectorDistance([1, 'a'], [1, 2])", None),
        ("VectorDistance([1, [2]], [1, 2])", None),
        ("VectorDistance(c.id, [1, 2])", None),
        ("VectorDistance([], [])", None),
        ("FullTextContains('The runner runs.', 'RUN')", True),
        ("FullTextContains('The United States of America', 'united states')", True),
        ("FullTextContains('The States United', 'united states')", False),
        ("FullTextContains('a b', 'c')", False),
        ("FullTextContains(c.none, 'c')", None),
        ("FullTextContains('a b', 1)", None),
        ("FullTextContainsAll('red bikes and blue cars', 'bike', 'red')", True),
        ("FullTextContainsAll('red bikes and blue cars', 'bike', 'green')", False),
        ("FullTextContainsAny('red bikes and blue cars', 'green', 'cars')", True),
        ("FullTextContainsAny('red bikes and blue cars', 'green', 'black')", False),
        ("_FullTextWordCount('one two, three-four')", 4),
    ],
)
def test_search_functions(expression: str, expected: Any) -> None:
    found = value(expression)
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)


def test_a_score_is_bm25() -> None:
    """Two documents of 3 and 5 words; the term is in one of them, twice."""
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 * 2.2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 3 / 4))
    assert score([2], 3, documents=2, words=8, hits=[1]) == pytest.approx(expected)


@pytest.mark.parametrize("most", [None, 0, 1, 7, 100])
def test_items_of_one_score_are_ranked_by_their_resource_ids(most: int | None) -> None:
    random = Random(5)
    scores = [float(random.randrange(4)) for _ in range(40)]
    rids = [f"{random.randrange(10**6)}=" for _ in scores]
    best = sorted(range(40), key=lambda x: (-scores[x], rids[x]))
    assert ranked([scores], [1.0], rids, most) == best[:most]
    assert ranked([], [], [], most) == []


HELD = [*searched_items(Random(3), 40)]


@hypothesis.settings(max_examples=150)
@hypothesis.given(searches(HELD, "cosine"))
def test_the_order_of_a_search_is_that_of_a_model(asked: Searched) -> None:
    given = {x["name"][1:]: x["value"] for x in asked.parameters}
    assert asked.found(results(asked.text, *HELD, **given)) == asked.best


@pytest.mark.parametrize("kind", VECTORS)
def test_the_distance_is_shown_beside_the_order(kind: str) -> None:
    ask = f"VectorDistance(c.vector, [1, 2, 3, 4], false, {{distanceFunction: '{kind}'}})"
    found = results(f"SELECT c.vector, {ask} AS d FROM c ORDER BY {ask}", *HELD)
    model = [distance(kind, x["vector"], (1, 2, 3, 4)) for x in HELD if "vector" in x]
    np.testing.assert_allclose(
        [x["d"] for x in found], sorted(model, reverse=kind != "euclidean")
    )


def test_one_score_ranks_the_best_first() -> None:
    texts = ["cat", "dog and cat", "dog", "dog dog", "bird"]
    held = [{"id": x, "_rid": x, "text": x} for x in texts]
    ask = "ORDER BY RANK FullTextScore(c.text, 'dog')"
    assert results(f"SELECT TOP 3 VALUE c.id FROM c {ask}", *held) == [
        *("dog dog", "dog", "dog and cat"),
    ]
    nearest = "SELECT VALUE c.n FROM c ORDER BY RANK VectorDistance(c.v, [1, 0])"
    assert results(nearest, {"n": 1, "v": [0, 1]}, {"n": 2, "v": [1, 0]}, {"n": 3}) == [2, 1, 3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT FullTextScore(c.t, 'a') FROM c", "ORDER BY RANK"),
        ("SELECT RRF(FullTextScore(c.t, 'a')) FROM c", "ORDER BY RANK"),
        (
            "SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'a') DESC",
            r"Specifying a sort order \(ASC or DESC\) in the ORDER BY RANK clause",
        ),
        (
            "SELECT * FROM c ORDER BY VectorDistance(c.v, [1]) ASC",
            r"Specifying a sorting order \(ASC or DESC\) with VectorDistance function",
        ),
        ("SELECT * FROM c ORDER BY VectorDistance(c.v, [1]), c.n", "VectorDistance"),
        ("SELECT * FROM c ORDER BY RANK c.n", "RANK"),
        ("SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'))", "RRF"),
        (
            (
                "SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), "
                "VectorDistance(c.v, [1]), [1])"
            ),
            "weight",
        ),
        ("SELECT * FROM c ORDER BY RANK FullTextScore(c.t)", "FULLTEXTSCORE"),
        ("SELECT DISTINCT c.t FROM c ORDER BY RANK FullTextScore(c.t, 'a')", "DISTINCT"),
        ("SELECT c.t FROM c JOIN x IN c.xs ORDER BY RANK FullTextScore(c.t, 'a')", "JOIN"),
        (
            "SELECT VALUE VectorDistance(c.v, [1], false, {distanceFunction: 'far'}) FROM c",
            "far.*cosine, dotproduct, euclidean",
        ),
    ],
)
def test_what_cannot_be_ranked_is_refused(text: str, words: str) -> None:
    with pytest.raises(CosmosError, match=words) as refused:
        results(text, {"id": "1", "t": "a", "v": [1]})
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("package", "expression"),
    [
        ("numpy", "VectorDistance([1], [1])"),
        ("snowballstemmer", "FullTextContains('a', 'a')"),
    ],
)
def test_without_the_extra_search_is_refused_by_name(
    package: str, expression: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(CosmosError, match=r"cosmos-emulator\[search\]"):
        value(expression)


def test_words_are_stemmed_in_the_language_of_their_path() -> None:
    assert value("FullTextContains('Die Häuser', 'Haus')") is False
    assert value("FullTextContains('running', 'run')") is True
