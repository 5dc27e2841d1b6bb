"""Dead letters in memory: for one process, and gone with it. For tests, mostly."""

from changefeed.observers.dead_letters.stored import StoredDeadLetters
from changefeed.stores.memory import MemoryStore


class MemoryDeadLetters(StoredDeadLetters):
    """No call ever waits. It outlives nothing; otherwise it keeps the contract."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), where="the memory of this process")
