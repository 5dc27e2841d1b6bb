"""Ownership and checkpoints in two stores of their own, in memory."""

from changefeed.leases.stored import StoredCheckpoints, StoredOwnership
from changefeed.stores.memory import MemoryStore


class MemoryOwnership(StoredOwnership):
    def __init__(self) -> None:
        super().__init__(MemoryStore())


class MemoryCheckpoints(StoredCheckpoints):
    def __init__(self) -> None:
        super().__init__(MemoryStore())
