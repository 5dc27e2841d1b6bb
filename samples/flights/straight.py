"""What must come out, taken straight from the rows of the data.

Nothing here knows of changes, feeds or observers: it is the other side of the proof. The
figures stand in ``observer.Carrier``, as a mere record to compare with.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

from .data import Row
from .observer import LATE, Carrier


class Last(NamedTuple):
    """The last that is known of a flight."""

    kind: str
    carrier: str
    flight: str
    origin: str
    dest: str
    delay: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What has to have happened to each flight, and the figures of each carrier.

    ``happened`` and ``last`` are by the number of the flight: the kinds of its changes, and
    what its last one says.
    """

    happened: Mapping[str, AbstractSet[str]]
    last: Mapping[str, Last]
    carriers: Mapping[str, Carrier]

    @property
    def changes(self) -> int:
        return sum(map(len, self.happened.values()))


_CANCELLED = frozenset({"scheduled", "cancelled"})
_DEPARTED = frozenset({"scheduled", "departed"})
_ARRIVED = frozenset({"scheduled", "departed", "arrived"})


def straight_from(rows: Iterable[tuple[int, Row]]) -> Expected:
    happened, last = {}, {}
    by_carrier = defaultdict(list)
    for number, row in rows:
        happened[str(number)] = _fate(row)
        last[str(number)] = _last(row)
        by_carrier[row["carrier"]].append((_fate(row), row["dep_delay"], row["arr_delay"]))
    return Expected(
        happened=happened,
        last=last,
        carriers={name: _figures(flights) for name, flights in by_carrier.items()},
    )


def _fate(row: Row) -> frozenset[str]:
    if not row["dep_time"]:
        return _CANCELLED
    return _ARRIVED if row["arr_time"] else _DEPARTED


def _last(row: Row) -> Last:
    fate = _fate(row)
    kind, delay = "arrived", row["arr_delay"]
    if fate is _CANCELLED:
        kind, delay = "cancelled", ""
    elif fate is _DEPARTED:
        kind, delay = "departed", row["dep_delay"]
    named = (row["carrier"], row["flight"], row["origin"], row["dest"])
    return Last(kind, *named, int(delay) if delay else None)


def _figures(flights: list[tuple[frozenset[str], str, str]]) -> Carrier:
    departures = [int(delay) for _, delay, _ in flights if delay]
    arrivals = [int(delay) for _, _, delay in flights if delay]
    fates = [fate for fate, _, _ in flights]
    return Carrier(
        scheduled=len(flights),
        cancelled=fates.count(_CANCELLED),
        departed=len(departures),
        late=sum(x >= LATE for x in departures),
        departure_delay=sum(departures),
        arrived=fates.count(_ARRIVED),
        timed_arrivals=len(arrivals),
        arrival_delay=sum(arrivals),
    )
