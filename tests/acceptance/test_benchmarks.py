"""``python -m benchmarks`` as ``make bench`` runs it: its shape, not its speeds."""

import json
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.support.processes import ended

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> CompletedProcess[str]:
    return ended(sys.executable, "-m", "benchmarks", *arguments, cwd=ROOT)


def test_one_benchmark_shows_a_table_and_writes_the_same_as_json(tmp_path: Path) -> None:
    out = tmp_path / "latest.json"
    done = bench("balance", f"--out={out}")
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    assert all(list(x) == ["name", "value", "unit", "against", "ratio"] for x in results)
    found = {x["name"]: x for x in results}
    assert found["balance.moves"] == {
        "name": "balance.moves",
        "value": 88,
        "unit": "moves",
        "against": "the fewest possible: 88",
        "ratio": 1.0,
    }
    assert found["balance.rounds"]["value"] == 1
    assert found["balance.later_moves"]["value"] == 0
    assert all(name in done.stdout for name in found)
    assert "3 of 3 goals met" in done.stdout
