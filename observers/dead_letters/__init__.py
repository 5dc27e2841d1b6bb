"""Changes that the observer could not handle, kept until somebody looks at them."""

from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    DeadLetters,
    LetterError,
    LetterHead,
    LetterId,
    Origin,
)
from changefeed.observers.dead_letters.memory import MemoryDeadLetters
from changefeed.observers.dead_letters.opening import open_dead_letters
from changefeed.observers.dead_letters.replaying import replay

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "LetterError",
    "LetterHead",
    "LetterId",
    "MemoryDeadLetters",
    "Origin",
    "open_dead_letters",
    "replay",
]
