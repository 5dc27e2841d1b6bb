"""A query over several ranges is right, or refused: never wrong in silence."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import hypothesis
import pytest
from azure.cosmos import CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from hypothesis import strategies as st

from cosmos_emulator.testing import Account, account_in_thread
from emulator.tests.asking import CLIENTS, Opened
from emulator.tests.merging import Asked, differs, fill, items, queries

_ITEMS = 50
_RANGES = (2, 5, 9)
_SHARES = {"full": 1.0, "gaps": 0.8}

_EXAMPLES = 150


@contextmanager
def filled_account() -> Iterator[Account]:
    """Give an account with the same items in containers of one range, and of several."""
    with account_in_thread() as account, CosmosClient(account.url, account.key) as client:
        database = client.create_database("d")
        for (name, share), ranges in itertools.product(_SHARES.items(), (1, *_RANGES)):
            held = items(Random(1), _ITEMS, share)
            fill(account, database, f"{name}{ranges}", held, ranges)
        yield account


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with filled_account() as made:
        yield made


def right(client: CosmosClient, name: str, asked: Asked) -> dict[str, Sequence[Any]]:
    """Return what one range answers to a query, and to the same without its limit."""
    one = client.get_database_client("d").get_container_client(name)
    (everything,) = one.read_feed_ranges()
    texts = {asked.text, asked.whole or asked.text}
    return {x: list(one.query_items(x, feed_range=everything)) for x in texts}


@pytest.mark.parametrize("opened", CLIENTS)
def test_what_a_client_merges_is_what_one_range_answers(
    opened: Opened, account: Account
) -> None:
    counts = Counter[str]()
    with opened(account) as ask, CosmosClient(account.url, account.key) as client:

        @hypothesis.settings(max_examples=_EXAMPLES, derandomize=True)
        @hypothesis.given(queries(), st.sampled_from([*_SHARES]), st.sampled_from(_RANGES))
        def is_right_or_refused(asked: Asked, name: str, ranges: int) -> None:
            try:
                found = ask(f"{name}{ranges}", asked.text)
            except (CosmosHttpResponseError, ValueError):  # also types that meet in an order
                counts["refused"] += 1
                return
            counts["merged"] += 1
            expected = right(client, f"{name}1", asked)
            assert not differs(asked, expected, found), (expected[asked.text], found)

        is_right_or_refused()
    assert counts["merged"] > counts["refused"]
