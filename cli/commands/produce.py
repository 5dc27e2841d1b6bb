"""``changefeed produce``: JSON lines become changes in an event log, or in a collection."""

from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error


def produce(
    log: Annotated[
        str,
        typer.Argument(
            help="The directory of the event log; or brokers://HOST:PORT/COLLECTION."
        ),
    ],
    file: Annotated[str, typer.Argument(help="A file of JSON lines; - reads a pipe.")] = "-",
    *,
    key: Annotated[str, typer.Option(help="The field that orders and places the changes.")],
    id_: Annotated[str | None, typer.Option("--id", help="The field of the id.")] = None,
    time_: Annotated[
        str | None, typer.Option("--time", help="The field of the time; else it is now.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option(help="The field that says insert, replace or delete.")
    ] = None,
    parts: Annotated[int | None, typer.Option(help="Parts of a new log (default: 12).")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Count bad lines and continue.")
    ] = False,
    from_line: Annotated[
        int, typer.Option("--from-line", min=1, help="The line to begin with.")
    ] = 1,
) -> None:
    """Append JSON lines to an event log or a collection, each as one change.

    Fields are named as they are in the line; order.id is the field id in the object order.
    It ends with 0 once all is appended, with 2 at a bad line, and with 1 if it was stopped
    or could not write. What was appended before stays, and it prints where to continue.
    """
    from changefeed.cli import producing
    from changefeed.cli.io.json_lines import FieldNames

    with exit_on_error():
        fields = FieldNames(key=key, id=id_, time=time_, operation=operation)
        plan = producing.ProducePlan(fields=fields, skip_bad=skip_bad, first=from_line)
        code = producing.produce(log, parts, file, plan)
    raise typer.Exit(code)
