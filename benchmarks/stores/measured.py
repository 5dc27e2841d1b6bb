"""One number of one store."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """``exactly`` is what it should be, where that is known."""

    name: str
    value: float
    unit: str
    exactly: float | None = None
