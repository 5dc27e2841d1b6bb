"""Readers over ranges that split and merge at random, one seed at a time.

A reader keeps what clients keep: bounds and a continuation for each part it reads. Run a
single failing seed again with ``pytest -k seed-<n>``.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import msgspec
import pytest

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.calls import Emulator
from cosmos_emulator.conditions import Conditions
from cosmos_emulator.feed import FeedRequest, read_page
from cosmos_emulator.hashing import HIGHEST, LOWEST
from cosmos_emulator.items import Transaction

STEPS = 150
KEYS = [f"key-{i}" for i in range(12)]


@dataclass(frozen=True)
class Section:
    """What a client remembers of a part of the hash space."""

    low: str
    high: str
    after: int


class World:
    def __init__(self, seed: int, *, all_versions: bool) -> None:
        self.random = Random(seed)
        self.emulator = Emulator(EmulatorSettings(), clock=lambda: 1_700_000_000.0)
        self.emulator.containers.create_database({"id": "d"})
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "version": 1 + seed % 2}}
        self.container = self.emulator.containers.create_container("d", body)
        self.all_versions = all_versions
        self.parts = [Section(LOWEST, HIGHEST, 0)]
        self.seen: list[dict[str, Any]] = []
        self.written: list[tuple[str, int | None]] = []  # (key, n), ``None`` for a delete
        self.now: dict[str, int] = {}

    def write(self) -> None:
        """Change one to three items of a key in one transaction."""
        key = self.random.choice(KEYS)
        with self.emulator.store.transaction():
            tx = Transaction(self.emulator.ranges)
            for _ in range(self.random.randint(1, 3)):
                self._change(tx, key)

    def _change(self, tx: Transaction, pk: str) -> None:
        name, key = f"{pk}/{self.random.randint(0, 1)}", self.container.keys.key(pk)
        body: dict[str, Any] = {"id": name.replace("/", "-"), "pk": pk}
        items = self.emulator.items
        if name in self.now and self.random.random() < 0.2:
            items.delete(tx, self.container, key, body["id"], Conditions())
            self.written.append((body["id"], None))
            del self.now[name]
        else:
            n = len(self.written)
            items.upsert(tx, self.container, key, body | {"n": n}, Conditions())
            self.written.append((body["id"], n))
            self.now[name] = n

    async def split(self) -> None:
        ranges = self.emulator.ranges.current(self.container.number)
        if len(ranges) < 8:
            chosen = self.random.choice(ranges)
            hashing = self.container.keys.hashing
            await self.emulator.ranges.split(self.container.number, chosen.id, hashing)

    async def merge(self) -> None:
        ranges = self.emulator.ranges.current(self.container.number)
        if len(ranges) > 1:
            i = self.random.randrange(len(ranges) - 1)
            pair = [ranges[i].id, ranges[i + 1].id]
            await self.emulator.ranges.merge(self.container.number, pair)

    def read(self, part: Section) -> bool:
        """Read a page of a part, or divide it where its range was split; tell if it ended."""
        ranges = self.emulator.ranges.current(self.container.number)
        owned = [x for x in ranges if x.low < part.high and part.low < x.high]
        self.parts.remove(part)
        if len(owned) > 1:
            for one in owned:
                low, high = max(one.low, part.low), min(one.high, part.high)
                self.parts.append(replace(part, low=low, high=high))
            return False
        request = FeedRequest(
            after=part.after,
            limit=self.random.randint(1, 5),
            all_versions=self.all_versions,
            low=part.low,
            high=part.high,
        )
        page = read_page(self.emulator.store, owned[0], request, ["/pk"])
        self.seen += [msgspec.json.decode(x) for x in page.entries]
        self.parts.append(replace(part, after=page.lsn))
        return not page.entries

    async def live(self) -> None:
        for _ in range(STEPS):
            match self.random.randrange(12):
                case 0:
                    await self.split()
                case 1:
                    await self.merge()
                case 2 | 3 | 4:
                    self.read(self.random.choice(self.parts))
                case _:
                    self.write()
        at_end = False
        while not at_end:
            ended = [self.read(x) for x in list(self.parts)]  # each of them, so no all(…) here
            at_end = all(ended)
        self.emulator.close()


@pytest.mark.parametrize("seed", range(40), ids="seed-{}".format)
async def test_readers_of_all_versions_see_every_change_once_and_in_order(seed: int) -> None:
    world = World(seed, all_versions=True)
    await world.live()
    told = [(x["metadata"]["id"], x["current"].get("n")) for x in world.seen]
    for name in {name for name, _ in world.written}:
        wanted = [x for x in world.written if x[0] == name]
        assert [x for x in told if x[0] == name] == wanted
    assert len(told) == len(world.written)


@pytest.mark.parametrize("seed", range(40), ids="seed-{}".format)
async def test_readers_of_latest_versions_see_the_newest_and_none_twice(seed: int) -> None:
    world = World(seed, all_versions=False)
    await world.live()
    told = [(x["id"], x["n"]) for x in world.seen]
    assert len(told) == len(set(told))
    newest = dict(told)  # the last that was seen of each
    for name, n in world.now.items():
        assert newest[name.replace("/", "-")] == n
