"""The kinds of records that are kept, and what a person sees of them.

Stores that have tables show each kind as a view, with these columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEASES: Final = "lease"
"""Who reads a range, with its position: ownership and checkpoint together."""
OWNERSHIP: Final = "ownership"
CHECKPOINTS: Final = "checkpoint"
HOSTS: Final = "host"
FLEET: Final = "fleet"
"""One record in each store: whose leases or checkpoints these are, of which feed."""
LETTERS: Final = "letter"
"""The heads of dead letters."""
LETTER_PARTS: Final = "letterpart"
"""Their whole text, which a listing leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The view ``name`` of the records of a kind: ``key`` is what their key is called, and
    ``fields`` are paths in the body, the last part of which names the column. ``stamp``, the
    time of the last write, comes behind them.
    """

    name: str
    kind: str
    key: str
    fields: Sequence[tuple[str, ...]]
    has_position: bool = False


_OWNED = (
    *(("owner",), ("epoch",), ("ended",), ("paused",), ("next_owner",)),
    ("health", "last_error"),
)
_LETTER = [
    ("head", x)
    for x in (
        *("feed", "observer", "range_id", "sequence", "key", "operation", "kind"),
        *("error", "attempts", "host", "failed_at"),
    )
]
VIEWS: Final = (
    View(name="leases", kind=LEASES, key="range_id", fields=_OWNED, has_position=True),
    View(name="ownership", kind=OWNERSHIP, key="range_id", fields=_OWNED),
    View(
        name="checkpoints",
        kind=CHECKPOINTS,
        key="range_id",
        fields=[("epoch",)],
        has_position=True,
    ),
    View(name="members", kind=HOSTS, key="name", fields=[("address",), ("software",)]),
    View(name="dead_letters", kind=LETTERS, key="id", fields=_LETTER),
)
