"""What a benchmark finds out, and how it is held against a goal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What was aimed at, in words, and whether it was reached."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One number. ``ratio`` is the value divided by that of ``against``, in the same run.

    ``against`` is the name of another result, or says in words what was compared with.
    """

    name: str
    value: float
    unit: str
    against: str | None = None
    ratio: float | None = None
    goal: Goal | None = None

    def as_json(self) -> dict[str, str | float | None]:
        return {
            "name": self.name,
            "value": _short(self.value),
            "unit": self.unit,
            "against": self.against,
            "ratio": None if self.ratio is None else _short(self.ratio),
        }


def at_least(value: float, limit: float) -> Goal:
    return Goal(text=f"≥ {limit:g}", met=value >= limit)


def at_most(value: float, limit: float) -> Goal:
    return Goal(text=f"≤ {limit:g}", met=value <= limit)


def exactly(value: float, wanted: float) -> Goal:
    return Goal(text=f"{wanted:g}", met=value == wanted)


def bounded(name: str, value: float, unit: str, most: float) -> Result:
    """Say that a value is to be no more than this."""
    return Result(name=name, value=value, unit=unit, goal=at_most(value, most))


def within(name: str, values: Sequence[float], limit: float, unit: str, why: str) -> Result:
    """Hold the worst of some values against a limit that is known beforehand."""
    worst = max(values)
    return Result(
        name=name,
        value=worst,
        unit=unit,
        against=f"{why}: {limit:g} {unit}",
        ratio=worst / limit,
        goal=at_most(worst, limit),
    )


def by_rounds(
    group: str,
    rounds: Sequence[Mapping[str, float]],
    what: str,
    unit: str,
    *,
    against: str | None = None,
    goal: float | None = None,
) -> Result:
    """Take the median over rounds in each of which several things were measured by turns.

    The ratio is the median of those of each round; ``goal`` is the least it is to be.
    """
    ratio = None if against is None else median(x[what] / x[against] for x in rounds)
    return Result(
        name=f"{group}.{what}",
        value=median(x[what] for x in rounds),
        unit=unit,
        against=None if against is None else f"{group}.{against}",
        ratio=ratio,
        goal=None if goal is None or ratio is None else at_least(ratio, goal),
    )


def _short(value: float) -> float:
    """Keep six digits: no measurement has more."""
    return float(f"{value:.6g}")
