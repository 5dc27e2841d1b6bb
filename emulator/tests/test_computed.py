"""Computed properties: a query finds them by their names, and no item shows them."""

from typing import Any

import pytest

from emulator.tests.by_hand import DOCS, Hand

COMPUTED = [
    {"name": "low", "query": "SELECT VALUE LOWER(x.name) FROM x"},
    {"name": "of", "query": "SELECT VALUE {a: c.n, b: [c.n, 7]} FROM c"},
    {"name": "itself", "query": "SELECT VALUE c.itself FROM c"},
]


async def define(by_hand: Hand, *computed: dict[str, str]) -> None:
    key = {"paths": ["/pk"], "kind": "Hash", "version": 2}
    body = {"id": "c", "partitionKey": key, "computedProperties": computed}
    assert (await by_hand.send("PUT", "/dbs/d/colls/c", body)).status == 200


@pytest.fixture
async def names(by_hand: Hand) -> Hand:
    await define(by_hand, *COMPUTED)
    for n, name in enumerate(["Bea", "ANN", "ann"]):
        body = {"id": str(n), "pk": "p", "name": name, "n": n}
        assert (await by_hand.send("POST", DOCS, body, key="p")).status == 201
    return by_hand


async def found(by_hand: Hand, query: str) -> Any:
    return (await by_hand.query(query)).body["Documents"]


@pytest.mark.parametrize(
    ("query", "results"),
    [
        ("SELECT VALUE c.low FROM c", ["bea", "ann", "ann"]),
        ("SELECT VALUE c.id FROM c WHERE c.low = 'ann'", ["1", "2"]),
        ("SELECT VALUE i.id FROM i ORDER BY i.low, i.id", ["1", "2", "0"]),
        ("SELECT DISTINCT VALUE c.low FROM c", ["bea", "ann"]),
        ("SELECT c.low AS k, COUNT(1) AS n FROM c GROUP BY c.low",
         [{"k": "bea", "n": 1}, {"k": "ann", "n": 2}]),
        ("SELECT VALUE c.of.b[1] FROM c", [7, 7, 7]),
        ("SELECT VALUE t FROM c JOIN t IN c.of.b WHERE t = 2", [2]),
        ("SELECT VALUE s FROM (SELECT VALUE c.low FROM c) AS s", ["bea", "ann", "ann"]),
        ("SELECT VALUE IS_DEFINED(c.itself) FROM c WHERE c.id = '0'", [False]),
    ],
)  # fmt: skip
async def test_a_query_finds_it_wherever_it_finds_what_is_stored(
    names: Hand, query: str, results: list[Any]
) -> None:
    assert await found(names, query) == results


@pytest.mark.parametrize("shown", ["*", "VALUE c", "c"])
async def test_no_item_shows_it(names: Hand, shown: str) -> None:
    for row in await found(names, f"SELECT {shown} FROM c"):
        item = row.get("c", row)
        assert item["name"]
        assert not {x["name"] for x in COMPUTED} & item.keys()


async def test_what_is_stored_under_the_name_wins_and_a_replaced_definition_counts(
    names: Hand,
) -> None:
    body = {"id": "own", "pk": "p", "name": "X", "low": "stored"}
    await names.send("POST", DOCS, body, key="p")
    assert await found(names, "SELECT VALUE c.low FROM c WHERE c.id = 'own'") == ["stored"]
    await define(names, {"name": "low", "query": "SELECT VALUE LENGTH(c.name) FROM c"})
    assert await found(names, "SELECT VALUE c.low FROM c WHERE c.id = '1'") == [3]
