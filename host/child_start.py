"""One start of a process, as its supervisor tells the process of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

_VARIABLE = "CHANGEFEED_INCARNATIONS"
"""The one of a process that a supervisor has started, and those before it, which ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """One start of the process of a name; ``dead`` are earlier ones, which have ended."""

    name: str
    incarnation: str
    dead: tuple[str, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the process of it."""
        return {_VARIABLE: " ".join([self.incarnation, *self.dead])}

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str]) -> "ChildStart":
        """Return what a supervisor has told this process, or a start of its own."""
        incarnation, *dead = environ.get(_VARIABLE, "").split() or [uuid4().hex]
        return cls(name=name, incarnation=incarnation, dead=tuple(dead))
