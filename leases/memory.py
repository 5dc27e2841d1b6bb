"""Leases in memory: for one process, and for tests and simulations of many hosts.

No test double: they keep the whole contract, over the store in memory.
"""

from changefeed.leases.stored import StoredLeases
from changefeed.stores.memory import MemoryStore


class MemoryLeases(StoredLeases):
    """A lease container for the hosts of one process; its leases end with it."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
