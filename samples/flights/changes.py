"""From a row about a flight to the changes that happened to it.

The file tells what became of a flight in one row, with times as the clocks on the spot
showed them (``517``, ``2400``), and without saying on which day. The rules:

* **scheduled** one day before the planned departure; the file does not say when a flight
  was announced. The planned departure is ``time_hour`` (UTC) and ``minute``.
* **departed** if there is a ``dep_time``: at the planned departure plus ``dep_delay``,
  which also tells on which day, where ``dep_time`` alone does not.
* **arrived** if there is an ``arr_time``: when the clock at the destination showed it for
  the first time after the departure. A flight that was diverted got there late and has no
  ``arr_delay``; 458 departed and have no ``arr_time``: of those nothing more is known.
* **cancelled** if there is no ``dep_time``: at the planned departure.

The rule for arrivals was held against ``air_time``: all 327,346 flights that have one
arrive after they have been in the air for so long, and none more than four hours later.
Limits: a flight that takes a day or more arrives a day early, and the night in which
clocks are changed may shift an arrival by an hour.

A change is the whole state of a flight, so the first is an insert and the others replace
it. The key is the aircraft (its tail number), or the carrier where the file has none.
"""

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from changefeed.feeds.feed import Operation
from changefeed.log.records import Record

from .data import Row

_DAY_IN_MINUTES = 24 * 60
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_encode = msgspec.json.Encoder().encode


class Kind(enum.StrEnum):
    SCHEDULED = "scheduled"
    DEPARTED = "departed"
    ARRIVED = "arrived"
    CANCELLED = "cancelled"


class State(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The body of a change. ``delay`` is in minutes, negative for early; not all have one."""

    kind: Kind
    carrier: str
    flight: str
    origin: str
    dest: str
    delay: int | None = None


class Step(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a flight."""

    at: datetime
    kind: Kind
    delay: int | None = None


def steps_of(row: Row, zones: Mapping[str, ZoneInfo]) -> Sequence[Step]:
    """Return what happened to one flight, in order."""
    planned = datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"]))
    scheduled = Step(planned - timedelta(days=1), Kind.SCHEDULED)
    if not row["dep_time"]:
        return [scheduled, Step(planned, Kind.CANCELLED)]
    delay = int(row["dep_delay"])
    departed = Step(planned + timedelta(minutes=delay), Kind.DEPARTED, delay)
    if not row["arr_time"]:
        return [scheduled, departed]
    arrival = _next_time(departed.at, row["arr_time"], zones[row["dest"]])
    return [scheduled, departed, Step(arrival, Kind.ARRIVED, _minutes(row["arr_delay"]))]


class _Flight(msgspec.Struct, frozen=True, gc=False):
    """What all changes of a flight share: a row in less memory."""

    id: str
    key: str
    carrier: str
    number: str
    origin: str
    dest: str

    @classmethod
    def of(cls, number: int, row: Row) -> "_Flight":
        shared = map(sys.intern, (row["carrier"], row["flight"], row["origin"], row["dest"]))
        return cls(str(number), sys.intern(row["tailnum"] or row["carrier"]), *shared)


class Happened(NamedTuple):
    """A step of a flight."""

    step: Step
    flight: _Flight


def in_order(
    rows: Iterable[tuple[int, Row]], zones: Mapping[str, ZoneInfo]
) -> Sequence[Happened]:
    """Return what happened to many flights in the order of its times.

    All of it is in memory: the file is not in this order.
    """
    found = [
        Happened(step, flight)
        for number, row in rows
        for flight in (_Flight.of(number, row),)
        for step in steps_of(row, zones)
    ]
    found.sort(key=lambda x: x.step.at)  # stable: one flight's steps keep their order
    return found


def records(happened: Iterable[Happened]) -> Sequence[Record]:
    """Return a change for each step of a flight."""
    return [_record(x.step, x.flight) for x in happened]


def _record(step: Step, flight: _Flight) -> Record:
    state = State(
        kind=step.kind,
        carrier=flight.carrier,
        flight=flight.number,
        origin=flight.origin,
        dest=flight.dest,
        delay=step.delay,
    )
    first = step.kind is Kind.SCHEDULED
    return Record(
        key=flight.key,
        id=flight.id,
        operation=Operation.INSERT if first else Operation.REPLACE,
        body=_encode(state),
        committed_us=(step.at - _EPOCH) // _MICROSECOND,
    )


def _next_time(after: datetime, clock: str, zone: ZoneInfo) -> datetime:
    """Return when a clock in ``zone`` next shows ``clock`` (as in ``2359``)."""
    there = after.astimezone(zone)
    shows = int(clock) // 100 * 60 + int(clock) % 100
    return after + timedelta(minutes=(shows - there.hour * 60 - there.minute) % _DAY_IN_MINUTES)


def _minutes(text: str) -> int | None:
    return int(text) if text else None
