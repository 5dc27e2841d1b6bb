"""What a seed came to."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Outcome:
    """``events`` and the like are counts; ``story`` has a line for each thing that happened."""

    seed: int
    feed: str
    hours: float
    events: int
    deliveries: int
    duplicates: int
    stale_reads: int
    story: list[str] = field(default_factory=list)
