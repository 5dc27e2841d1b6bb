"""What is said of commands."""

from typing import Final

from changefeed.cli.commands.status import Sort
from changefeed.cli.io.json_lines import FieldNames, record_of
from changefeed.cli.io.position_files import read_positions
from changefeed.cli.resetting import check
from changefeed.cli.status_tables import View, refuse_contradictions
from changefeed.fleet.reset import check_position
from changefeed.runtime.quantities import seconds, size

from .table import Table

COMMANDS: Final = Table("Commands")


def _status(given: tuple[View, str]) -> None:
    view, flags = given
    chosen = {x: x in flags for x in ("json", "watch")}
    refuse_contradictions(view, **chosen)


COMMANDS.each(
    _status,
    {
        "status as JSON, sorted": (View(sort=Sort.LAG), "json"),
        "status by rates after one look": (View(sort=Sort.RATE), ""),
    },
)
COMMANDS.each(seconds, {"a duration with a unit that there is not": "7w"})
COMMANDS.each(size, {"a size with a unit that there is not": "64MB"})
COMMANDS.each(lambda names: check(names, "now", all_=False), {"a reset of no range": []})
COMMANDS.each(
    lambda names: check_position(names, "12/34"), {"a position for two ranges": ["r0", "r1"]}
)
COMMANDS.each(read_positions, {"a file of positions that is not there": "none"})
COMMANDS.each(
    lambda line: record_of(line, FieldNames(key="k", time="t", operation="op")),
    {
        "a line that is no JSON": b"{",
        "a line that is no object": b"[1]",
        "a line without its key": b"{}",
        "a line with a key that is no text": b'{"k": true}',
        "a line with a time without a zone": b'{"k": "a", "t": "2026-01-01T00:00:00"}',
        "a line with a time in milliseconds": b'{"k": "a", "t": 1767225600000}',
        "a line with an operation that there is not": b'{"k": "a", "t": 1, "op": "upsert"}',
    },
)
