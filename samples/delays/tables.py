"""From the event log of a run of ``samples.flights`` to tables, and to figures by carrier."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from pipeline.keeping import keep
from pipeline.settings import PipelineSettings

BODY = "kind STRING, carrier STRING, flight STRING, origin STRING, dest STRING, delay INT"
DAILY = {
    "name": "daily",
    "window": "1 day",
    "by": {"carrier": "value.carrier"},
    "sums": {"delay": "value.delay"},
    "where": "value.kind = 'departed'",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The departures of a carrier on one day (UTC), and their delays in minutes."""

    carrier: str
    day: str
    departures: int
    delay: int

    @property
    def mean(self) -> float:
        return self.delay / self.departures


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the tables came to."""

    changes: int
    flights: int
    days: Sequence[Day]

    def departures(self) -> Mapping[str, tuple[int, int]]:
        """Return the number of departures and the sum of their delays, by carrier."""
        found: dict[str, tuple[int, int]] = {}
        for x in self.days:
            count, delay = found.get(x.carrier, (0, 0))
            found[x.carrier] = (count + x.departures, delay + x.delay)
        return found


def keep_tables(directory: Path, spark: Mapping[str, str] | None = None) -> Kept:
    """Bring the tables of a run up to date, in its folder ``tables``, and read them.

    Raise ``QueryFailed`` if a table cannot be kept, ``FeedRefused`` if there was no run.
    """
    settings = PipelineSettings.model_validate(
        {
            "feed": f"eventlog:{directory / 'log'}",
            "directory": str(directory / "tables"),
            "body_schema": BODY,
            "aggregates": [DAILY],
            "spark": dict(spark or {}),
        }
    )
    keep(settings, threading.Event(), once=True)
    days = [
        Day(
            carrier=x["carrier"],
            day=x["window_start"].date().isoformat(),
            departures=x["changes"],
            delay=x["delay"] or 0,
        )
        for x in _rows(settings, "daily")
    ]
    return Kept(
        changes=DeltaTable(settings.table("changes")).count(),
        flights=DeltaTable(settings.table("latest")).count(),
        days=sorted(days, key=lambda x: (x.carrier, x.day)),
    )


def _rows(settings: PipelineSettings, name: str) -> Sequence[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(settings.table(name)).to_pyarrow_table().to_pylist()
    )
    return found
