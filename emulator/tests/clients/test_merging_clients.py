"""What Azure's other clients merge of several ranges is right, or they refuse."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from azure.cosmos import CosmosClient

from cosmos_emulator.testing import Account
from emulator.tests.clients.programs import go, java, lines_of, node, rust
from emulator.tests.merging import Asked, differs, queries
from emulator.tests.test_merging import filled_account, right

pytestmark = pytest.mark.nightly
_QUERIES = 200
_SECONDS = 170.0


@dataclass(frozen=True, kw_only=True)
class Merging:
    """A client's program, what share of queries it must merge, and which it changes itself."""

    command: Callable[[str, str], list[str]]
    least: float
    changed: str = "(?!)"


_CLIENTS = {
    # Java takes an array of one value for that value, makes 0 of a SUM of texts, and {} of an
    # AVG of nothing in a column.
    "java": Merging(
        command=lambda *x: java("Merge", *x),
        least=0.8,
        changed=r"VALUE \[|(SUM|AVG)\(c\.(s|none)\)",
    ),
    # Node drops what is false, zero or empty among the values of DISTINCT VALUE, and makes 0 of
    # a SUM of texts in a column.
    "node": Merging(
        command=lambda *x: node("merge.js", *x),
        least=0.5,
        changed=r"SELECT DISTINCT .*\bVALUE|SUM\(c\.s\) AS",
    ),
    # Rust asks ranges without a plan where it takes a query for one that needs none.
    "rust": Merging(
        command=lambda *x: rust("merge", *x), least=0.5, changed=r"FROM \(SELECT DISTINCT"
    ),
    "go": Merging(command=lambda *x: go("merge", *x), least=0.1),
}


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    with filled_account() as made:
        yield made


def drawn(seed: int, changed: str) -> list[Asked]:
    """Return queries that the client gives without changing them."""
    found: list[Asked] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=_QUERIES, database=None)
    @hypothesis.given(queries())
    def collect(asked: Asked) -> None:
        if not re.search(changed, asked.text):
            found.append(asked)

    collect()
    return found


@pytest.mark.parametrize("container", ["full2", "full9", "gaps5"])
@pytest.mark.parametrize("client", _CLIENTS)
async def test_what_a_client_merges_is_what_one_range_answers(
    client: str, container: str, account: Account, tmp_path: Path
) -> None:
    merging = _CLIENTS[client]
    texts, asked = tmp_path / "queries.json", drawn(len(container), merging.changed)
    texts.write_text(json.dumps([x.text for x in asked]))
    where = {"COSMOS_ENDPOINT": account.url, "COSMOS_KEY": account.key}
    lines = await lines_of(merging.command(container, str(texts)), where, _SECONDS)
    wrong, merged = [], 0
    with CosmosClient(account.url, account.key) as reference:
        for one, line in zip(asked, lines, strict=True):
            if "results" in line:
                merged += 1
                expected = right(reference, f"{container[:-1]}1", one)
                if differs(one, expected, line["results"]):
                    wrong.append((one.text, expected[one.text], line["results"]))
    assert wrong == [], "\n".join(map(str, wrong))
    assert merged > len(asked) * merging.least
