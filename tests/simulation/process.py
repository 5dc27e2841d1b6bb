"""A host of a world, from one start to its end."""

import asyncio
import contextvars
from dataclasses import dataclass, field

from changefeed.host.host import Host

from .clocks import Clock


@dataclass(slots=True, kw_only=True)
class Process:
    """One start of a host: what a SIGKILL ends."""

    name: str
    start: int
    host: Host
    task: asyncio.Task[None]
    context: contextvars.Context
    clock: Clock
    killed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def id(self) -> str:
        return f"{self.name}/{self.start}"
