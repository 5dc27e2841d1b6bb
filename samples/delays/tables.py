"""The tables of a run of ``samples.flights``: their settings, and what stands in them."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from changefeed.pipeline.settings import PipelineSettings, load_settings
from changefeed.pipeline.status import tables_status

SETTINGS = Path(__file__).with_name("pipeline.toml")

_ADVICE = "changefeed: "
_SHOWN = 5


class NoTable(Exception):
    """A table was never made. The text is the advice."""


class NotKept(Exception):
    """The command failed. ``code`` is its own: 2 if a person has to change something."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(code, said)
        self.code = code
        self.said = said

    def __str__(self) -> str:
        lines = self.said.splitlines()
        advice = [n for n, x in enumerate(lines) if x.startswith(_ADVICE)]
        if advice:
            return "\n".join(lines[advice[0] :][:_SHOWN]).removeprefix(_ADVICE)
        how = f"changefeed pipeline ended with code {self.code}; what it said ends:"
        return "\n".join([how, *lines[-_SHOWN:]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What happened to a carrier on one day (UTC), of one kind: a row of ``daily``.

    ``timed`` of the ``changes`` tell a delay; ``delay`` is their sum in minutes, and
    ``late`` how many of them came 15 minutes late or more.
    """

    carrier: str
    day: date
    kind: str
    changes: int
    timed: int
    late: int
    delay: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Departures:
    """How many departures a carrier had, and their delays in minutes, added up."""

    count: int = 0
    delay: int = 0

    @property
    def mean(self) -> float:
        return self.delay / self.count


def feed_of(directory: Path) -> str:
    """Return the address of the event log of a run."""
    return f"eventlog:{directory / 'log'}"


def settings_of(directory: Path) -> PipelineSettings:
    """Return the settings of the tables of a run, which are in its folder ``tables``."""
    places = {"feed": feed_of(directory), "directory": str(directory / "tables")}
    return load_settings(SETTINGS, places)


def command(directory: Path) -> Sequence[str]:
    """Return the command that brings the tables of a run up to date, and ends."""
    settings = settings_of(directory)
    return [
        *(sys.executable, "-P", "-m", "changefeed", "pipeline", "run", "--once"),
        *(f"--config={SETTINGS}", f"--feed={settings.feed}"),
        f"--directory={settings.directory}",
    ]


def keep_tables(directory: Path) -> None:
    """Bring the tables up to date. Spark is started only if there is something to do.

    Raise ``NotKept`` if that fails, and ``FeedRefused`` if there was no run.
    """
    if all(x.lag == 0 for x in tables_status(settings_of(directory)).tables):
        return
    done = subprocess.run(command(directory), capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if done.returncode:
        raise NotKept(done.returncode, done.stdout + done.stderr)


def read(settings: PipelineSettings, name: str) -> pa.Table:
    """Read a table, without Spark. Raise ``NoTable`` if it is not there."""
    uri = settings.table(name)
    if not DeltaTable.is_deltatable(uri):
        raise NoTable(
            f"{uri} is no table: what made it was broken off, or it was removed; to make all "
            f"of them anew, remove {settings.directory}, and run python -m samples.delays"
        )
    return pa.table(DeltaTable(uri).to_pyarrow_table())


def days(settings: PipelineSettings) -> Sequence[Day]:
    """Read the table ``daily``."""
    found: list[dict[str, Any]] = read(settings, "daily").to_pylist()
    return [
        Day(
            carrier=x["carrier"],
            day=x["window_start"].date(),
            kind=x["kind"],
            changes=x["changes"],
            timed=x["timed"],
            late=x["late"] or 0,  # a sum of nothing but NULL is NULL
            delay=x["delay"] or 0,
        )
        for x in found
    ]


def departures(of: Sequence[Day]) -> Mapping[str, Departures]:
    """Add up the departures of each carrier that had any."""
    found: dict[str, Departures] = {}
    for x in of:
        if x.kind == "departed":
            before = found.get(x.carrier, Departures())
            found[x.carrier] = Departures(
                count=before.count + x.changes, delay=before.delay + x.delay
            )
    return found
