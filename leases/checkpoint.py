"""How far a range is done: what its owner writes, and the next owner begins with.

A checkpoint is a position, and where changes behind it are done, what is not: ``high`` and the
holes below it. The next owner reads from ``position``, passes over what is at most ``high``
and in no hole, and hands on the rest.

Stores and hosts pass the value on. Only it knows what text a store keeps of it: the bare
position where nothing behind it is done, else the position, a separator, and the rest as JSON.

Limits: a key is kept as a hash of 8 bytes. Where two keys have one hash, what is done of the
one may come again for the sake of the other. Processors of .NET begin at the position.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from changefeed.feeds.feed import Change, Position
from changefeed.runtime.errors import StoreRefused

MAX_HOLES: Final = 64
_SEPARATOR: Final = "\x1f"


class Hole(msgspec.Struct, frozen=True, array_like=True):
    """Of this key nothing is done from ``sequence`` on. ``key`` is its hash, 16 hexadecimal
    digits; ``failures`` count against the first change.
    """

    key: str
    sequence: int
    failures: int = 0


class _Behind(msgspec.Struct, frozen=True, array_like=True):
    high: int
    holes: tuple[Hole, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All below ``position`` is done, and all up to the sequence ``high`` but the holes."""

    position: Position
    high: int | None = None
    holes: tuple[Hole, ...] = ()

    def __post_init__(self) -> None:
        assert self.high is not None or not self.holes, f"{self.holes} are below nothing"
        assert len(self.holes) <= MAX_HOLES, f"{len(self.holes)} holes"

    @property
    def text(self) -> str:
        """What a store keeps."""
        if self.high is None and _SEPARATOR not in self.position:
            return self.position
        rest = b"" if self.high is None else msgspec.json.encode(_Behind(self.high, self.holes))
        return f"{self.position}{_SEPARATOR}{rest.decode()}"

    @classmethod
    def of_text(cls, text: str) -> "Checkpoint":
        """Read what a store has kept. Raise ``StoreRefused`` for what is no such text."""
        position, separator, rest = text.rpartition(_SEPARATOR)
        if not separator:
            return cls(Position(text))
        if not rest:
            return cls(Position(position))
        try:
            behind = msgspec.json.decode(rest, type=_Behind)
        except msgspec.DecodeError as error:
            raise StoreRefused(
                f"the checkpoint at {position!r} names keys that wait, and they cannot be read "
                f"({error}): it was changed by hand, or a newer version wrote it. Upgrade this "
                "host, or say where the range goes on, with: changefeed reset"
            ) from error
        return cls(Position(position), behind.high, behind.holes)


def covers(high: int, holes: Mapping[str, Hole], change: Change) -> bool:
    """Whether a change behind its position is done, with these holes by their keys."""
    if change.sequence > high:
        return False
    hole = holes.get(hash_of(change.key))
    return hole is None or change.sequence < hole.sequence


@lru_cache(maxsize=4096)  # keys that wait are in each checkpoint
def hash_of(key: str) -> str:
    """Return the name that a hole has for a key."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
