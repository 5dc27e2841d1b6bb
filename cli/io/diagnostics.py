"""What ``doctor`` prints."""

from collections.abc import Sequence

import typer
from rich.table import Table
from rich.text import Text

from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.runtime.diagnostics import Diagnostic, Severity

_COLOURS = {Severity.FINE: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}


def print_diagnostics(found: Sequence[Diagnostic], *, json: bool, exit_code: int) -> None:
    """Print a table, or one JSON document; end with ``exit_code`` if there is a problem."""
    if json:
        typer.echo(as_json(found, indented=True))
    else:
        print_whole(_table(found))
    if any(x.severity is Severity.PROBLEM for x in found):
        raise typer.Exit(exit_code)


def _table(found: Sequence[Diagnostic]) -> Table:
    advised = any(x.advice for x in found)
    columns = ("", "about", "found", *(("what to do",) if advised else ()))
    return a_table(*columns, rows=(_row(x)[: len(columns)] for x in found))


def _row(x: Diagnostic) -> Sequence[str | Text]:
    return Text(x.severity, style=_COLOURS[x.severity]), x.about, x.text, x.advice
