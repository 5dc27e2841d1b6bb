"""One deliberate break, as a function that patches what it names."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from changefeed.stores.memory import MemoryStore
from changefeed.stores.store import Record

_MISSING = object()


class Stale(Exception):
    """There is nothing to break: what a mutant names is gone, or of another kind."""


class Patch:
    """Takes the place of what is named, in this process, for good."""

    def patch(self, owner: Any, name: str, new: Any) -> None:
        """Put ``new`` in place of an attribute that is there.

        What a module has is replaced in all modules that have imported it, too.
        """
        old = inspect.getattr_static(owner, name, _MISSING)
        if old is _MISSING:
            raise Stale(f"{owner!r} has no {name!r} any more: break what took its place")
        if old is new or isinstance(old, property) != isinstance(new, property):
            raise Stale(f"{name!r} of {owner!r} is not what it was: break it anew")
        for place in [*sys.modules.values()] if inspect.ismodule(owner) else [owner]:
            if inspect.getattr_static(place, name, _MISSING) is old:
                setattr(place, name, new)


Break = Callable[[Patch], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """``rule`` is the number of the design's rule that is broken, and ``guarantee`` that of
    the row of ``docs/design/guarantees.md``, if there is one. ``places`` are the tests that
    must notice, as pytest names them: files, or the beginning of a name.
    """

    name: str
    rule: int
    guarantee: int | None
    places: tuple[str, ...]
    apply: Break


async def nothing(*_: object, **__: object) -> None:
    """Be in the place of what a mutant leaves out."""


_put = MemoryStore.put


async def put_in_any_version(self: MemoryStore, record: Record) -> Record | None:
    """Write over whatever is there."""
    stored = await self.get(record.kind, record.key)
    version = "" if stored is None else stored.version
    return await _put(self, replace(record, version=version))


def mutant(*, rule: int, guarantee: int | None = None, kills: str) -> Callable[[Break], Mutant]:
    """Make a mutant of a function. ``kills`` are places below ``tests``."""

    def made(apply: Break) -> Mutant:
        return Mutant(
            name=apply.__name__.replace("_", " "),
            rule=rule,
            guarantee=guarantee,
            places=tuple(f"tests/{x}" for x in kills.split()),
            apply=apply,
        )

    return made
