"""What a seed came to."""

from dataclasses import dataclass, field

from .probes import Probes


@dataclass(kw_only=True)
class Outcome:
    """``feed`` names the kind of world; ``events`` and the like are counts.

    ``probes`` says how often which of them was hit, ``story`` has a line for each event.
    """

    seed: int
    feed: str
    hours: float
    events: int
    deliveries: int
    duplicates: int
    probes: Probes = field(default_factory=Probes)
    story: list[str] = field(default_factory=list)
