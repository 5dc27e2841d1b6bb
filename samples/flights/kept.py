"""Reading what the tables hold: without Spark, as anyone would who has been given them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.settings import PipelineSettings
from samples.delays.tables import Day, read

from .observer import Carrier
from .straight import Last


class Row(NamedTuple):
    """A row of the table ``changes``."""

    generation: int
    range: RangeId
    sequence: int
    key: str
    flight: str
    kind: str
    at_us: int


def changes(settings: PipelineSettings) -> Iterator[Row]:
    """Yield the rows in no particular order."""
    found = read(settings, "changes")
    at_us = found["committed_at"].cast(pa.int64())
    kind = pc.struct_field(found["value"], "kind")
    plain = (found[x] for x in ("generation", "range", "sequence", "key", "id"))
    return map(Row, *(x.to_pylist() for x in (*plain, kind, at_us)))


def latest(settings: PipelineSettings) -> Sequence[tuple[str, Last]]:
    """Return the flights that are not deleted, by their numbers: twice what is there twice."""
    found = read(settings, "latest")
    found = found.filter(pc.invert(found["deleted"]))
    fields = (pc.struct_field(found["value"], x).to_pylist() for x in Last._fields)
    return list(zip(found["id"].to_pylist(), map(Last, *fields), strict=True))


def carriers(days: Iterable[Day]) -> Mapping[str, Carrier]:
    """Add up the table ``daily``, to figures as the observers keep them."""
    found: dict[str, Carrier] = {}
    for x in days:
        _add(found.setdefault(x.carrier, Carrier()), x)
    return found


def _add(carrier: Carrier, day: Day) -> None:
    match day.kind:
        case "scheduled":
            carrier.scheduled += day.changes
        case "cancelled":
            carrier.cancelled += day.changes
        case "departed":
            carrier.departed += day.changes
            carrier.late += day.late
            carrier.departure_delay += day.delay
        case "arrived":
            carrier.arrived += day.changes
            carrier.timed_arrivals += day.timed
            carrier.arrival_delay += day.delay
