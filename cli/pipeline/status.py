"""``changefeed pipeline status``: how far each table is, range by range."""

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.cli.pipeline.flags import PipelineFlags
from changefeed.pipeline.status import TableStatus, tables_status


@with_flags
def status(
    flags: PipelineFlags,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show how far each table is. Spark is not started, and the pipeline need not run."""
    with exit_on_error():
        found = tables_status(flags.settings())
        if json:
            typer.echo(as_json(found, indented=True))
            return
        for one in found:
            print_whole(_rendered(one))


def _rendered(seen: TableStatus) -> RenderableType:
    state = "no batch yet" if seen.batch is None else f"batch {seen.batch}, lag {seen.lag:,}"
    running = "running" if seen.running else "not running"
    heading = Text(f"{seen.table}: {state}, {running}", style="bold")
    if not seen.ranges:
        return heading
    rows = ((x.range, x.position, "ended" if x.ended else f"{x.lag:,}") for x in seen.ranges)
    return Group(heading, a_table("range", "position", "lag", rows=rows))
