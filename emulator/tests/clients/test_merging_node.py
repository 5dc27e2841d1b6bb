"""What Azure's client for Node merges of several ranges is right, or it refuses."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from azure.cosmos import CosmosClient

from cosmos_emulator.testing import Account
from emulator.tests.clients.programs import lines_of, node
from emulator.tests.merging import Asked, differs, queries
from emulator.tests.test_merging import filled_account, right

pytestmark = pytest.mark.nightly
_QUERIES = 200
_SECONDS = 170.0
_CHANGED = re.compile(r"SELECT DISTINCT .*\bVALUE|SUM\(c\.s\) AS")


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with filled_account() as made:
        yield made


def drawn(seed: int) -> list[Asked]:
    """Return queries that the client gives without changing them.

    It drops what is false, zero or empty among the values of DISTINCT VALUE, and makes 0 of a
    SUM of texts in a column.
    """
    found: list[Asked] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=_QUERIES, database=None)
    @hypothesis.given(queries())
    def collect(asked: Asked) -> None:
        if not _CHANGED.search(asked.text):
            found.append(asked)

    collect()
    return found


@pytest.mark.parametrize("container", ["full2", "full9", "gaps5"])
async def test_what_node_merges_is_what_one_range_answers(
    container: str, account: Account, tmp_path: Path
) -> None:
    texts, asked = tmp_path / "queries.json", drawn(len(container))
    texts.write_text(json.dumps([x.text for x in asked]))
    where = {"COSMOS_ENDPOINT": account.url, "COSMOS_KEY": account.key}
    lines = await lines_of(node("merge.js", container, str(texts)), where, _SECONDS)
    wrong, merged = [], 0
    with CosmosClient(account.url, account.key) as client:
        for one, line in zip(asked, lines, strict=True):
            if "results" in line:
                merged += 1
                expected = right(client, f"{container[:-1]}1", one)
                if differs(one, expected, line["results"]):
                    wrong.append((one.text, expected[one.text], line["results"]))
    assert wrong == [], "\n".join(map(str, wrong))
    assert merged > len(asked) / 2
