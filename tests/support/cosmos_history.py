"""What happens to a container of Cosmos DB at random, and what a reader must find of it."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from changefeed.feeds.feed import Change, Operation
from tests.support.cosmos_feeds import CosmosWorld

Found = tuple[str, str, int | None]
"""Of a change: the id, the operation, and the number in its body."""

_ITEMS = 8


def told(change: Change) -> Found:
    number = None if change.operation is Operation.DELETE else change.value()["n"]
    return change.id, change.operation.value, number


@dataclass(kw_only=True)
class History:
    """Writes, deletes, splits and merges, and remembers each version."""

    world: CosmosWorld
    random: Random
    steps: int = 0
    versions: dict[str, list[Found]] = field(default_factory=lambda: defaultdict(list))

    async def happens(self) -> None:
        self.steps += 1
        for _ in range(self.random.randrange(1, 6)):
            await self._change(f"i{self.random.randrange(_ITEMS)}")
        if self.random.random() < 0.4:
            await self.world.shake(self.random)

    def counts(self) -> Mapping[str, int]:
        """Return how many versions each item has had."""
        return Counter({x: len(found) for x, found in self.versions.items()})

    def state(self) -> dict[str, int | None]:
        """Return the numbers of the items that are there."""
        return {x: y[-1][2] for x, y in self.versions.items() if y[-1][1] != "delete"}

    def missed(self, found: Iterable[Found], begun: Mapping[str, int]) -> list[str]:
        """Return the items of which a reader, which began at ``begun``, was not told all, in
        order, and once.
        """
        by_item: dict[str, list[Found]] = defaultdict(list)
        for x in found:
            by_item[x[0]].append(x)
        assert by_item.keys() <= self.versions.keys()
        return [x for x in self.versions if not self._is_told(x, by_item[x], begun[x])]

    def _is_told(self, name: str, found: list[Found], begun: int) -> bool:
        versions = self.versions[name]
        taken = [x for x in found if x[1] == "snapshot"]
        before, since = versions[:begun], versions[begun:]
        there = [(name, "snapshot", x[2]) for x in before[-1:] if x[1] != "delete"]
        return found == [*taken, *since] and (taken == there or bool(since and not taken))

    async def _change(self, name: str) -> None:
        versions = self.versions[name]
        is_there = bool(versions) and versions[-1][1] != "delete"
        if is_there and self.random.random() < 0.3:
            await self.world.remove(name, f"k{name}")
            versions.append((name, "delete", None))
            return
        number = len(versions)
        await self.world.put(name, f"k{name}", n=number)
        versions.append((name, "replace" if is_there else "insert", number))
