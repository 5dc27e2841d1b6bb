"""One change in a hundred always fails: how fast are the others done, and does each that fails
become a dead letter?

The observer waits 1 ms with each change, as for an answer of another system, and raises at the
first that it cannot take: the call has failed, with what it did before. Twelve ranges, changes
from 5000 keys, dead letters and leases in SQLite files. Changes are tried four times, within a
tenth of a second each, as the default of ten tries within minutes would measure nothing but
delays. Some changes more come all the while, as in any feed that is in use: where nothing else
succeeds, failing changes look like an outage.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter

from changefeed.feeds.feed import Change
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.observers.dead_letters import DeadLetters, open_dead_letters
from tests.support.logs import captured_logs
from tests.support.sqlite_leases import SqliteLeases

from .logs import make_log, records
from .one_host import Parts, Until, running_host
from .result import Result, at_least, exactly

_CHANGES, _POISONS = 100_000, 1_000
_PAUSE = 0.001
_SETTINGS: Parts = {
    "observer": {"on_failure": "dead-letter", "retry": {"attempts": 4, "max_delay": 0.1}},
    "feed": {"poll_interval": 0.1},
}
_PATIENCE = 120.0
_REST = 0.2


class Picky(Until):
    """Raises at the changes with these numbers, after the time that those before them take."""

    def __init__(self, changes: int, poisons: Sequence[int]) -> None:
        super().__init__(changes - len(poisons))
        self._poisons = frozenset(poisons)

    async def process(self, changes: Sequence[Change]) -> None:
        bad = (n for n, x in enumerate(changes) if x.value()["n"] in self._poisons)
        first = next(bad, None)
        await asyncio.sleep(_PAUSE * (len(changes) if first is None else first))
        if first is not None:
            raise ValueError("cannot take it")
        await super().process([x for x in changes if x.value()["n"] < _CHANGES])


def measure() -> Sequence[Result]:
    with captured_logs("CRITICAL"):  # of lines about failures there are thousands
        return asyncio.run(_measured())


async def _measured() -> Sequence[Result]:
    poisons = Random(1).sample(range(_CHANGES), _POISONS)
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        without, _, _ = await _seconds(Path(place) / "without", [])
        others, seconds, letters = await _seconds(Path(place) / "with", poisons)
    rate, usual = (_CHANGES - _POISONS) / others, _CHANGES / without
    return [
        Result(name="poison.without", value=usual, unit="changes/s"),
        Result(
            name="poison.others",
            value=rate,
            unit="changes/s",
            against="poison.without",
            ratio=rate / usual,
            goal=at_least(rate / usual, 0.5),
        ),
        Result(
            name="poison.dead_letters",
            value=letters,
            unit="changes",
            against=f"of {_POISONS}, after {seconds:.0f} s",
            goal=exactly(letters, _POISONS),
        ),
    ]


async def _seconds(place: Path, poisons: Sequence[int]) -> tuple[float, float, int]:
    """Return after how long all others were done, after how long the last poison was a dead
    letter, and how many of them are one.
    """
    log = place / "log"
    await make_log(log, parts=12, changes=_CHANGES)
    async with (
        EventLog.open(log) as feed,
        SqliteLeases(place / "leases.db") as container,
        open_dead_letters(f"sqlite:{place / 'letters.db'}") as letters,
        _more_changes(log),
    ):
        until = Picky(_CHANGES, poisons)
        async with running_host(feed, container, _SETTINGS, until, letters=letters) as began:
            async with asyncio.timeout(_PATIENCE):
                await until.all_here.wait()
            others = perf_counter() - began
            found = await _dead_letters(letters, len(poisons))
            return others, perf_counter() - began, found


async def _dead_letters(letters: DeadLetters, wanted: int) -> int:
    """Return how many there are, once all are there, or patience is over."""
    found = 0
    for _ in range(int(_PATIENCE / _REST)):
        found = len(await letters.list())
        if found >= wanted:
            break
        await asyncio.sleep(_REST)
    return found


@asynccontextmanager
async def _more_changes(log: Path) -> AsyncIterator[None]:
    """Append some changes now and then, of all ranges."""

    async def append() -> None:
        async with EventLogWriter.open(log) as writer:
            for n in count():
                await writer.send_many(records(_CHANGES + 100 * n, 100))
                await asyncio.sleep(_REST)

    appending = asyncio.create_task(append())
    try:
        yield
    finally:
        appending.cancel()
        await asyncio.gather(appending, return_exceptions=True)
