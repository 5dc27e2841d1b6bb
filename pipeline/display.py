"""Progress while a pipeline runs: a live table on a terminal, else a line now and then."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from changefeed.pipeline.progress import Board, RangeSeen, TableSeen
from changefeed.runtime.logs import get_logger

_log = get_logger()

_LOG_EVERY: Final = 10.0
_MOST_RANGES: Final = 20
"""A table with more ranges shows those that lag most."""


@contextmanager
def display(board: Board) -> Iterator[Callable[[], None]]:
    """Yield a callable that displays the board's state; call it a few times a second."""
    if not sys.stderr.isatty():
        yield Lines(board).look
        return
    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        # Log lines go above the table, not into it.
        before = {
            x: x.setStream(sys.stderr)
            for x in logging.getLogger().handlers
            if type(x) is logging.StreamHandler
        }
        try:
            yield lambda: live.update(rendered(board.seen()), refresh=True)
        finally:
            for handler, stream in before.items():
                handler.setStream(stream or sys.__stderr__)


class Lines:
    """Logs each table that has had a batch since its last line."""

    def __init__(self, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self._board = board
        self._clock = clock
        self._next = clock() + _LOG_EVERY
        self._logged: dict[str, TableSeen] = {}

    def look(self) -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + _LOG_EVERY
        for seen in self._board.seen():
            if seen.batch is not None and seen != self._logged.get(seen.table):
                self._logged[seen.table] = seen
                _log.info("table.progress", **_line(seen))


def rendered(tables: Sequence[TableSeen]) -> Table:
    """Return a table with a line for each table, and below it one for each of its ranges."""
    shown = Table("table", "range", "batch", "changes/s", "lag")
    for x in tables:
        batch = "-" if x.batch is None else str(x.batch)
        shown.add_row(Text(x.table), Text(x.trouble or ""), batch, _rate(x.rate), _count(x.lag))
        for name, one in _most_behind(x):
            shown.add_row("", Text(name), "", _rate(one.rate), _count(one.lag))
        if len(x.ranges) > _MOST_RANGES:
            shown.add_row("", f"and {len(x.ranges) - _MOST_RANGES} more", "", "", "")
    return shown


def _most_behind(seen: TableSeen) -> Sequence[tuple[str, RangeSeen]]:
    behind = sorted(seen.ranges.items(), key=lambda x: (-x[1].lag, x[0]))
    return sorted(behind[:_MOST_RANGES])


def _line(seen: TableSeen) -> dict[str, object]:
    return {
        "table": seen.table,
        "batch": seen.batch,
        "changes": seen.changes,
        "rate": _rounded(seen.rate),
        "lag": seen.lag,
        "ranges": {
            name: {"rate": _rounded(x.rate), "lag": x.lag} for name, x in _most_behind(seen)
        },
    }


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
