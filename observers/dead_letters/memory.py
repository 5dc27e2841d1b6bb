"""Dead letters in memory: for one process, and gone with it. For tests, mostly."""

from collections.abc import Sequence

from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterId,
    check_same_change,
    in_order,
)


class MemoryDeadLetters:
    """No call ever waits. It outlives nothing; otherwise it keeps the contract."""

    def __init__(self) -> None:
        self._letters: dict[LetterId, DeadLetter] = {}

    async def put(self, letter: DeadLetter) -> None:
        kept = self._letters.setdefault(letter.id, letter)
        check_same_change(letter, kept, "the memory of this process")

    async def list(self) -> Sequence[DeadLetter]:
        return sorted(self._letters.values(), key=in_order)

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        return self._letters.get(letter_id)

    async def remove(self, letter_id: LetterId) -> bool:
        return self._letters.pop(letter_id, None) is not None
