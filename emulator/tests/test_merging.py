"""A query over several ranges is right, or refused: never wrong in silence."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError as CosmosBadRequest

from emulator.tests.by_hand import Hand, container
from emulator.tests.merging import Asked, differs, items, query

_ITEMS = 60
_QUERIES = 60


async def filled(
    client: CosmosClient, by_hand: Hand, random: Random, ranges: int
) -> ContainerProxy:
    """Fill ``c`` of one range, and ``many`` of several, with the same items."""
    one = await container(client)
    many = await container(client, "many")
    for item in items(random, _ITEMS):
        await one.create_item(item)
        await many.create_item(item)
    names = ["0"]
    for _ in range(ranges - 1):
        cut = {"database": "d", "container": "many", "range": names.pop(0)}
        names += [x["id"] for x in await by_hand.control("POST", "split", **cut)]
    return many


async def right(by_hand: Hand, asked: Asked) -> dict[str, Sequence[Any]]:
    """Return what the one range answers to a query, and to the same without its limit."""
    found = {}
    for text in {asked.text, asked.whole or asked.text}:
        answer = await by_hand.query(text, limit=10_000)
        assert answer.status == 200, (text, answer.body)
        found[text] = answer.body["Documents"]
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_what_the_client_merges_is_what_one_range_answers(
    seed: int, client: CosmosClient, by_hand: Hand
) -> None:
    random = Random(seed)
    many = await filled(client, by_hand, random, ranges=random.randrange(2, 10))
    wrong, refused = [], 0
    for _ in range(_QUERIES):
        asked = query(random)
        try:
            merged = [x async for x in many.query_items(asked.text, max_item_count=7)]
        except (CosmosBadRequest, ValueError):  # the client refuses to order types by another
            refused += 1
            continue
        expected = await right(by_hand, asked)
        if differs(asked, expected, merged):
            wrong.append((asked.text, expected[asked.text], merged))
    assert wrong == []
    assert refused < 0.7 * _QUERIES  # GROUP BY, and types that meet in an order
