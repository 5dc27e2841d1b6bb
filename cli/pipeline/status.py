"""``changefeed pipeline status``: how far each table is, range by range."""

import time
from typing import Final

import typer
from rich.console import Group, RenderableType

from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, plain, print_whole, refreshed
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.status import TablesStatus, TableStatus, tables_status

_EVERY: Final = 1.0


def show(settings: PipelineSettings, *, json: bool, watch: bool) -> None:
    """Print how far each table is, as tables or as JSON, once or until Ctrl-C."""
    found = tables_status(settings)
    if json:
        typer.echo(as_json(found, indented=not watch))
        while watch:
            time.sleep(_EVERY)
            typer.echo(as_json(tables_status(settings)))
    elif not watch:
        print_whole(as_tables(found))
    else:
        with refreshed() as show_look:
            show_look(as_tables(found))
            while True:
                time.sleep(_EVERY)
                show_look(as_tables(tables_status(settings)))


def as_tables(seen: TablesStatus) -> RenderableType:
    """Return a status as text, with a table for each table."""
    return Group(*(y for x in seen.tables for y in _rendered(x)))


def _rendered(seen: TableStatus) -> list[RenderableType]:
    state = "no batch yet" if seen.batch is None else f"batch {seen.batch}, lag {seen.lag:,}"
    running = "running" if seen.running else "not running"
    heading = plain(f"{seen.table}: {state}, {running}", "bold")
    if not seen.ranges:
        return [heading]
    rows = ((x.range, x.position, "ended" if x.ended else f"{x.lag:,}") for x in seen.ranges)
    return [heading, a_table("range", "position", "lag", rows=rows)]
