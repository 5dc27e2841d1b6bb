"""What keeps the leases of the hosts of a world: heartbeats, renewals, or both by turns."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal

Kind = Literal["host", "lease"]

_WORLDS: Sequence[tuple[Kind, ...]] = (
    ("host",),
    ("host",),
    ("host",),
    ("lease",),
    ("host", "lease"),
    ("host", "host", "lease"),
)


class Renewals:
    """Chosen by the seed, and for each start of a host; ``all_by`` says the same for all."""

    def __init__(self, seed: int, all_by: Kind | None = None) -> None:
        self._random = Random(f"renewals {seed}")
        chosen = self._random.choice(_WORLDS)
        self._kinds = chosen if all_by is None else (all_by,)

    @property
    def by_heartbeats(self) -> bool:
        """Whether at rest no host writes a lease."""
        return self._kinds == ("host",)

    def choose(self) -> Kind:
        return self._random.choice(self._kinds)

    @staticmethod
    def settings_of(kind: Kind) -> Mapping[str, object]:
        return {"renewal": kind}
