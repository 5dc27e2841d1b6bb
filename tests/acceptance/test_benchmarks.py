"""``python -m benchmarks`` as ``make bench`` runs it: its shape, not its speeds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_benchmark_shows_a_table_and_writes_the_same_as_json(tmp_path: Path) -> None:
    out = tmp_path / "latest.json"
    ended = bench("balance", f"--out={out}")
    assert ended.returncode == 0, ended.stderr
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
    assert all(name in ended.stdout for name in found)
    assert "3 of 3 goals met" in ended.stdout


def test_a_name_that_is_none_is_told_with_those_there_are(tmp_path: Path) -> None:
    out = tmp_path / "latest.json"
    ended = bench("nope", f"--out={out}")
    assert ended.returncode == 2
    assert "no benchmark 'nope'" in ended.stderr
    assert "pipeline, merging" in ended.stderr
    assert not out.exists()
