"""One start of a process, as its supervisor tells the process of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import uuid4

import msgspec

_VARIABLE = "CHANGEFEED_STARTED_AS"
"""What a supervisor tells a process: which start of it this is, and how earlier ones ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStart:
    """One start of the process of a name. ``dead`` are earlier ones, which have ended, and
    how: by the name of a signal, or an exit code.
    """

    name: str
    incarnation: str
    dead: Mapping[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells the process of it."""
        told = {"incarnation": self.incarnation, "dead": self.dead}
        return {_VARIABLE: msgspec.json.encode(told).decode()}

    def of_processor(self, processor: str) -> "ChildStart":
        """Return what is told to the host of one of several processors of the process: no two
        hosts have one incarnation, wherever they keep their leases.
        """
        if not processor:
            return self
        dead = {f"{x}-{processor}": how for x, how in self.dead.items()}
        return replace(self, incarnation=f"{self.incarnation}-{processor}", dead=dead)

    @classmethod
    def of(cls, name: str, environ: Mapping[str, str]) -> "ChildStart":
        """Return what a supervisor has told this process, or a start of its own."""
        if _VARIABLE not in environ:
            return cls(name=name, incarnation=uuid4().hex)
        told = msgspec.json.decode(environ[_VARIABLE])
        return cls(name=name, incarnation=told["incarnation"], dead=told["dead"])
