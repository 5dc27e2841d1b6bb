"""Reading what the observers of a fleet of processes wrote down."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from changefeed.testing.history import Delivery


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed(Delivery):
    """A delivery, and the process that made it."""

    pid: int


History = Sequence[Handed]


def read_history(path: Path) -> History:
    """Read what ``tests.support.recorder`` has written; nothing, if there is no file.

    A line that is being written, or whose writer was killed, is not there yet.
    """
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [msgspec.json.decode(x, type=Handed) for x in whole.splitlines()]
