"""Dead letters by address, as settings and command lines name them.

``sqlite:PATH`` and ``jsonl:PATH`` are files. A new kind is one more line in the table.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from changefeed.observers.dead_letters.jsonl import open_jsonl
from changefeed.observers.dead_letters.letter import DeadLetters
from changefeed.observers.dead_letters.sqlite import open_sqlite
from changefeed.observers.errors import DeadLettersRefused

_OPENERS: Mapping[str, Callable[[str], AbstractAsyncContextManager[DeadLetters]]] = {
    "sqlite": open_sqlite,
    "jsonl": open_jsonl,
}


def open_dead_letters(address: str) -> AbstractAsyncContextManager[DeadLetters]:
    """Open a place for dead letters, making it if it is not there.

    Raise ``DeadLettersRefused`` for an address that cannot be one, here or when entered.
    """
    scheme, colon, place = address.partition(":")
    if not colon or scheme not in _OPENERS:
        known = ", ".join(f"{name}:PATH" for name in _OPENERS)
        raise DeadLettersRefused(
            f"{address!r} is no address of dead letters; there are: {known}"
        )
    if not place:
        raise DeadLettersRefused(f"{address!r} does not say where: {scheme}:PATH")
    return _OPENERS[scheme](place)
