"""What ``check`` and ``doctor`` print."""

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from changefeed.cli.io.documents import as_json
from changefeed.runtime.diagnostics import Diagnostic, Severity

_COLOURS = {Severity.FINE: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}


def print_diagnostics(found: Sequence[Diagnostic], *, json: bool, exit_code: int) -> None:
    """Print a table, or one JSON document; end with ``exit_code`` if there is a problem."""
    if json:
        typer.echo(as_json(found, indented=True))
    else:
        Console().print(_table(found))
    if any(x.severity is Severity.PROBLEM for x in found):
        raise typer.Exit(exit_code)


def _table(found: Sequence[Diagnostic]) -> Table:
    table = Table("", "about", "found", "what to do")
    for x in found:
        severity = Text(x.severity, style=_COLOURS[x.severity])
        # What names and errors hold may look like markup.
        table.add_row(severity, *map(Text, (x.about, x.text, x.advice)))
    return table
