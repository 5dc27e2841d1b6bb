"""What a directory of the emulator holds before it is opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cosmos_emulator.store import Store


def test_a_directory_in_another_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "emulator.sqlite"
    with closing(sqlite3.connect(file)) as other:
        other.execute("pragma user_version = 1")
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"format 1, .* only: give it an empty directory"):
        Store(tmp_path)
    assert file.read_bytes() == before
