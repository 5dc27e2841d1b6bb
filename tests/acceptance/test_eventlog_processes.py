"""The event log with real processes: writers that are killed."""

import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disks import ext4_at
from tests.support.processes import ended

ROOT = Path(__file__).parents[2]


def outlives(writers: int, place: Path) -> None:
    """Kill so many writers of a log: some have written, and some have compacted."""
    program = (sys.executable, "-m", "tests.support.killed_writers")
    done = ended(*program, place / "log", str(writers), "7", cwd=ROOT, patience=3000)
    assert done.returncode == 0, done.stderr
    expected = rf"{writers} kills, [1-9]\d* batches acknowledged, [1-9]\d* runs\n"
    assert re.fullmatch(expected, done.stdout), done.stdout


@pytest.fixture
def memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        yield Path(place)


def test_what_was_acknowledged_outlives_killed_writers_and_no_batch_is_torn(
    memory: Path,
) -> None:
    outlives(30, memory)


def test_nothing_is_lost_or_torn_by_a_thousand_kills_on_a_disk(tmp_path: Path) -> None:
    with ext4_at(tmp_path / "disk") as disk:
        outlives(1000, disk)
