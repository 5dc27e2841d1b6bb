"""The proof: what the observers left behind, held against the data.

Four claims, and for each the reasons why it does not hold, if any:

1. Every change of the data was delivered at least once, and nothing else was.
2. The changes of a key came in the order of their times, in one range. Within a range
   sequences followed each other without a gap, and where a new owner began further back, it
   was after a batch that an owner before it had finished: at a checkpoint.
3. The observers' figures are those of the data: what came twice counts once.
4. The hosts stopped in order: nobody owns a lease, and every checkpoint is at the end.

The figures are those that the observers kept themselves, by sequence; they are not worked
out again from the deliveries.
"""

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease
from changefeed.testing.history import KeyOrder, Tenures

from .deliveries import Turn
from .observer import Carrier, Figures
from .straight import Expected

_SAID_AT_MOST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    text: str
    problems: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """``repeated`` tells how many changes came again, by the host to which they came first.

    ``last`` is the kind of change that came last of each flight, leaving out repetitions.
    """

    claims: Sequence[Claim]
    deliveries: int
    repeated: Mapping[str, int]
    last: Mapping[str, str]

    @property
    def holds(self) -> bool:
        return all(x.holds for x in self.claims)

    @property
    def duplicates(self) -> int:
        return sum(self.repeated.values())


def prove(
    expected: Expected,
    turns: Iterable[Turn],
    figures: Mapping[RangeId, Figures],
    leases: Sequence[tuple[Lease, int]],
) -> Proof:
    """Check all claims. ``leases`` come with the number of changes after their checkpoint."""
    coverage, order = Coverage(expected.happened), Order()
    for turn in turns:
        coverage.add(turn)
        order.add(turn)
    claims = {
        f"Each of the {expected.changes:,} changes was delivered at least once": (
            coverage.problems()
        ),
        "The changes of each key came in order, and again only from a checkpoint on": (
            order.problems
        ),
        "The observers' figures equal those computed straight from the data": (
            wrong_figures(expected.carriers, totals(figures.values()))
        ),
        "All hosts stopped in order: no lease is owned, every checkpoint is at the end": (
            unfinished(leases)
        ),
    }
    return Proof(
        claims=[Claim(text=text, problems=problems) for text, problems in claims.items()],
        deliveries=order.deliveries,
        repeated=order.repeated,
        last=order.last,
    )


class Coverage:
    """What has been delivered of what had to be."""

    def __init__(self, happened: Mapping[str, Iterable[str]]) -> None:
        self._missing = {number: set(kinds) for number, kinds in happened.items()}
        self._happened = happened
        self._invented: list[str] = []

    def add(self, turn: Turn) -> None:
        for x in turn.deliveries:
            if x.kind in self._happened.get(x.flight, ()):
                self._missing[x.flight].discard(x.kind)
            else:
                self._invented.append(f"flight {x.flight} was never {x.kind}")

    def problems(self) -> Sequence[str]:
        missing = [
            f"that flight {number} {kind} was never delivered"
            for number, kinds in self._missing.items()
            for kind in sorted(kinds)
        ]
        return missing + self._invented


class Order:
    """Follows every range from turn to turn, and every key in its range."""

    def __init__(self) -> None:
        self._tenures = Tenures(after_batches=True)
        self._trails = KeyOrder[str](operator.eq)
        self._first_to: dict[tuple[str, int], str] = {}
        self.problems: list[str] = []
        self.deliveries = 0
        self.repeated: Counter[str] = Counter()
        self.last: dict[str, str] = {}

    def add(self, turn: Turn) -> None:
        """Take in the next turn of its range."""
        tenure = turn.epoch, turn.host
        for x in turn.deliveries:
            place = turn.range, x.sequence
            given = self._tenures.given(turn.range, tenure, x.sequence, x.sequence)
            self.problems += map(str, given.problems)
            if given.again:
                self.repeated[self._first_to.get(place, "nobody")] += 1
            else:
                self._first_to[place] = turn.host
                self.last[x.flight] = x.kind
                self.problems += map(str, self._trails.next(x.key, turn.range, x.at_us))
            if x.ends_batch:
                self._tenures.batch_done(*place)
        self.deliveries += len(turn.deliveries)


def totals(figures: Iterable[Figures]) -> Mapping[str, Carrier]:
    """Add up the figures of all ranges."""
    found: dict[str, Carrier] = {}
    for one in figures:
        for name, carrier in one.carriers.items():
            found[name] = _sum(found.get(name, Carrier()), carrier)
    return found


def _sum(one: Carrier, other: Carrier) -> Carrier:
    names = Carrier.__struct_fields__
    return Carrier(**{x: getattr(one, x) + getattr(other, x) for x in names})


def wrong_figures(
    expected: Mapping[str, Carrier], found: Mapping[str, Carrier]
) -> Sequence[str]:
    return [
        f"carrier {name}: {field} is {getattr(got, field)} instead of {getattr(want, field)}"
        for name in sorted({*expected, *found})
        for want, got in ((expected.get(name, Carrier()), found.get(name, Carrier())),)
        for field in Carrier.__struct_fields__
        if getattr(want, field) != getattr(got, field)
    ]


def unfinished(leases: Sequence[tuple[Lease, int]]) -> Sequence[str]:
    if not leases:
        return ["there are no leases"]
    owned = [f"{x.range_id} is still owned by {x.owner}" for x, _ in leases if x.owner]
    behind = [f"{n} changes of {x.range_id} lie after its checkpoint" for x, n in leases if n]
    return owned + behind


def in_words(proof: Proof) -> str:
    return f"{told(proof.claims)}\n{_duplicates(proof)}"


def told(claims: Sequence[Claim]) -> str:
    """Tell which claims hold, and of what does not the first reasons."""
    lines = []
    for claim in claims:
        lines.append(f"{'holds' if claim.holds else 'FAILS':>6}  {claim.text}.")
        lines += [f"          - {x}" for x in claim.problems[:_SAID_AT_MOST]]
        more = len(claim.problems) - _SAID_AT_MOST
        if more > 0:
            lines.append(f"          - and {more:,} more")
    return "\n".join(lines)


def _duplicates(proof: Proof) -> str:
    whose = ", ".join(
        f"{n:,} that {host} had had" for host, n in sorted(proof.repeated.items())
    )
    again = f" ({whose})" if whose else ""
    return f"{proof.deliveries:,} deliveries, {proof.duplicates:,} of them duplicates{again}."
