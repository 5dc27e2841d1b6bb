"""What Azure's client for Node merges of the searches of several ranges is what one finds."""

import json
from pathlib import Path

import hypothesis
import pytest

from emulator.tests.clients.programs import lines_of, node
from emulator.tests.searching import Searched, searches
from emulator.tests.test_search_plan import HELD, filled_account

pytestmark = pytest.mark.nightly
_SECONDS = 170.0


def drawn() -> list[Searched]:
    found: list[Searched] = []

    @hypothesis.settings(max_examples=100, database=None)
    @hypothesis.given(searches(HELD, "euclidean"))
    def collect(asked: Searched) -> None:
        found.append(asked)

    collect()
    return found


def as_object(text: str) -> str:
    """Ask for objects: of plain values the client finds no scores, and throws."""
    return text.replace("SELECT VALUE c.id", "SELECT c.id")


@pytest.mark.parametrize("container", ["c2", "c9"])
async def test_what_node_merges_is_what_a_model_finds(container: str, tmp_path: Path) -> None:
    texts, asked = tmp_path / "queries.json", drawn()
    sent = [{"query": as_object(x.text), "parameters": x.parameters} for x in asked]
    texts.write_text(json.dumps(sent))
    with filled_account() as account:
        where = {"COSMOS_ENDPOINT": account.url, "COSMOS_KEY": account.key}
        lines = await lines_of(node("merge.js", container, str(texts)), where, _SECONDS)
    wrong = [
        (one.text, line)
        for one, line in zip(asked, lines, strict=True)
        if "results" not in line or one.found([x["id"] for x in line["results"]]) != one.best
    ]
    assert wrong == [], "\n".join(map(str, wrong))
