"""Unique keys: values that only one item of a partition key may have.

An item without a value has null there, and only one of them may. A value is given back
when its item is deleted, or gets another.
"""

import msgspec

from cosmos_emulator.containers import Container
from cosmos_emulator.errors import CosmosError
from cosmos_emulator.json_values import UNDEFINED, JsonObject, value_at
from cosmos_emulator.partition_keys import PartitionKey, steps_of
from cosmos_emulator.store import Store


class UniqueKeys:
    """Knows which item has which values. Called inside a transaction of the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def take(
        self, container: Container, key: PartitionKey, number: int, body: JsonObject
    ) -> None:
        """Give an item its values, in the place of those it had; 409 if another has them."""
        if not container.unique:
            return
        self.give_back(container, number)
        for i, paths in enumerate(container.unique):
            value = _text(body, paths)
            row = (container.number, key.text, i, value)
            taken = self._store.row(
                "SELECT 1 FROM unique_values "
                "WHERE container = ? AND pk = ? AND position = ? AND value = ?",
                row,
            )
            if taken:
                raise CosmosError(
                    409,
                    f"Unique index constraint violation: an item of {key.text} has {value} at "
                    f"{', '.join(paths)} already.",
                )
            self._store.run(
                "INSERT INTO unique_values (container, pk, position, value, number) "
                "VALUES (?, ?, ?, ?, ?)",
                (*row, number),
            )

    def give_back(self, container: Container, number: int) -> None:
        if container.unique:
            self._store.run("DELETE FROM unique_values WHERE number = ?", (number,))


def _text(body: JsonObject, paths: tuple[str, ...]) -> str:
    found = [value_at(body, steps_of(x)) for x in paths]
    return msgspec.json.encode([None if x is UNDEFINED else x for x in found]).decode()
