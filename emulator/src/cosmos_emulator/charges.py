"""Request units, roughly as Cosmos DB charges them.

==============  ==============================================================
point read      1 for the first KB, then 1/11 for each further KB (100 KB: 10)
write           4.7 for the first KB, 0.46 for each further KB, and 0.06 for each
                value that is indexed (1 KB with ten values: 5.3)
replace         twice a write: the old index entries go, the new ones come
delete          a write of the item that goes
query           2.3, 0.01 for each item it looked at, 0.1 for each KB of answer
feed page       1, and 0.1 for each KB of answer
anything else   1
==============  ==============================================================

A value is indexed if the most specific path of the indexing policy that fits it is an
included one. Composite, spatial and vector indexes cost nothing here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.partition_keys import steps_of

_KB = 1024
OTHER = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedPaths:
    """An indexing policy, read once: (steps, whether it includes) for each path."""

    rules: tuple[tuple[tuple[str, ...], bool], ...]
    everything: bool  # the default policy: no need to look at paths

    def count(self, item: JsonObject) -> int:
        """Return how many values of the item are indexed."""
        if self.everything:
            return _size(item)
        return sum(number for path, number in _leaves(item) if self._includes(path))

    def _includes(self, path: tuple[str, ...]) -> bool:
        fitting = [x for x in self.rules if path[: len(x[0])] == x[0]]
        return max(fitting, key=lambda x: len(x[0]), default=((), False))[1]


def indexed_paths(policy: JsonObject) -> IndexedPaths:
    if str(policy.get("indexingMode", "consistent")).lower() == "none":
        return IndexedPaths(rules=(), everything=False)
    included = [(_prefix(x["path"]), True) for x in policy.get("includedPaths", [])]
    excluded = [(_prefix(x["path"]), False) for x in policy.get("excludedPaths", [])]
    excluded = [x for x in excluded if x[0] != ("_etag",)]  # never in what is counted
    everything = not excluded and ((), True) in included
    return IndexedPaths(rules=(*included, *excluded), everything=everything)


def read(size: int) -> float:
    return round(1 + max(0.0, size / _KB - 1) / 11, 2)


def write(size: int, indexed: int) -> float:
    return round(4.7 + 0.46 * max(0.0, size / _KB - 1) + 0.06 * indexed, 2)


def replace(size: int, indexed: int) -> float:
    return round(2 * write(size, indexed), 2)


def query(looked_at: int, size: int) -> float:
    return round(2.3 + 0.01 * looked_at + 0.1 * size / _KB, 2)


def feed_page(size: int) -> float:
    return round(1 + 0.1 * size / _KB, 2)


def _prefix(path: str) -> tuple[str, ...]:
    steps = steps_of(path)
    return steps[:-1] if steps and steps[-1] in {"*", "?"} else steps


def _size(item: JsonObject) -> int:
    """Return how many values there are. Each write asks, also of items of 2 MB."""
    number, left = 0, [iter(item.values())]
    while left:
        for value in left.pop():
            if type(value) is dict:
                left.append(iter(value.values()))
            elif type(value) is list:
                left.append(iter(value))
            else:
                number += 1
    return number


def _leaves(item: JsonObject) -> Iterator[tuple[tuple[str, ...], int]]:
    """Give the path of each value; of the values of one list, once with their number."""
    left: list[tuple[tuple[str, ...], Any]] = [((), item)]
    while left:
        path, holder = left.pop()
        in_list = (*path, "[]")
        named = holder.items() if type(holder) is dict else ((None, x) for x in holder)
        number = 0
        for name, value in named:
            inside = in_list if name is None else (*path, name)
            if type(value) in (dict, list):
                left.append((inside, value))
            elif name is None:
                number += 1
            else:
                yield inside, 1
        if number:
            yield in_list, number
