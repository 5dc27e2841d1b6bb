"""Changes that the observer could not handle, kept until somebody looks at them."""

from .letter import DeadLetter, DeadLetters, Failure, LetterId
from .memory import MemoryDeadLetters
from .opening import open_dead_letters
from .replaying import replay

__all__ = [
    "DeadLetter",
    "DeadLetters",
    "Failure",
    "LetterId",
    "MemoryDeadLetters",
    "open_dead_letters",
    "replay",
]
