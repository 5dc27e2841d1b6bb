"""The database of an account: its directory, its transactions, and the way back."""

import contextlib
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from random import Random

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


class Changing:
    """A store, and what has to be in it."""

    def __init__(self, directory: Path | None, seed: int) -> None:
        self.store = Store(directory)
        self.random = Random(seed)
        self.there: set[str] = set()
        self.kept: set[str] = set()

    def write(self) -> None:
        name, fails = str(self.store.next_number()), self.random.random() < 0.4
        with contextlib.suppress(sqlite3.IntegrityError), self.store.transaction():
            self._insert(name)
            with self.store.transaction():
                self._insert(f"{name} inside")
            if fails:
                self._insert(name)  # it is there already
            self.there |= {name, f"{name} inside"}

    def write_alone(self) -> None:
        name = str(self.store.next_number())
        self._insert(name)
        self.there.add(name)

    def delete(self) -> None:
        self.store.run("DELETE FROM databases")
        self.there = set()

    def snapshot(self) -> None:
        self.store.snapshot()
        self.kept = set(self.there)

    def restore(self) -> None:
        self.store.restore()
        self.there = set(self.kept)

    def take_a_copy(self) -> None:
        copy, then = self.store.copy(), set(self.there)
        for _ in range(self.random.randint(0, 2)):
            self.write()
        self.store.replace(copy)
        self.there, self.kept = then, set(then)

    def _insert(self, *names: str) -> None:
        for name in names:
            self.store.run("INSERT INTO databases VALUES (?, ?, 0, '')", (name, name))


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_store_is_what_was_written_since_the_last_way_back(
    tmp_path: Path, *, is_kept: bool
) -> None:
    world = Changing(tmp_path if is_kept else None, seed=5)
    rare = [world.snapshot, world.restore, world.take_a_copy, world.delete]
    steps = [world.write, world.write_alone, world.write, *rare]
    for _ in range(400):
        world.random.choice(steps)()
        assert {x for (x,) in world.store.rows("SELECT id FROM databases")} == world.there
    world.store.close()
    if is_kept:
        again = Store(tmp_path)
        assert {x for (x,) in again.rows("SELECT id FROM databases")} == world.there
        again.close()


def test_in_memory_a_snapshot_and_the_way_back_cost_what_changed_alone() -> None:
    store = Store()
    with store.transaction():
        for number in range(100):
            name = str(number)
            many = "x" * 400_000
            store.run("INSERT INTO databases VALUES (?, ?, 0, ?)", (name, name, many))
    store.snapshot()
    took = []
    for _ in range(5):
        store.run("UPDATE databases SET ts = 1 WHERE id = '7'")
        start = time.process_time()
        store.snapshot()
        store.restore()
        took.append(time.process_time() - start)
    store.close()
    assert min(took) < 0.01  # to copy 40 MB takes ten times as long
