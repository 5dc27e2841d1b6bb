"""What Azure's client for Node merges of several ranges is right, or it refuses."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.by_hand import Hand
from emulator.tests.clients.programs import lines_of, node
from emulator.tests.merging import differs, query
from emulator.tests.test_merging import filled, right

pytestmark = pytest.mark.nightly
_QUERIES = 200
_SECONDS = 170.0


@pytest.mark.parametrize("seed", range(100, 103))
async def test_what_node_merges_is_what_one_range_answers(
    seed: int, client: CosmosClient, by_hand: Hand, tmp_path: Path
) -> None:
    random, texts = Random(seed), tmp_path / "queries.json"
    await filled(client, by_hand, random, ranges=random.randrange(2, 10))
    drawn = [query(random) for _ in range(_QUERIES)]
    # The client drops what is false, zero or empty among the values of DISTINCT VALUE.
    queries = [x for x in drawn if not re.match(r"SELECT DISTINCT .*\bVALUE c", x.text)]
    texts.write_text(json.dumps([x.text for x in queries]))
    where = {"COSMOS_ENDPOINT": by_hand.url, "COSMOS_KEY": DEVELOPMENT_KEY}
    lines = await lines_of(node("merge.js", str(texts)), where, _SECONDS)
    wrong, merged = [], 0
    for asked, line in zip(queries, lines, strict=True):
        if "results" in line:
            merged += 1
            expected = await right(by_hand, asked)
            if differs(asked, expected, line["results"]):
                wrong.append((asked.text, expected[asked.text], line["results"]))
    assert wrong == []
    assert merged > len(queries) / 2
