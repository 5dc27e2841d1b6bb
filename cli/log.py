"""``changefeed log``: look after an event log, or a collection of a cluster."""

import typer

from changefeed.cli import collection_status, collections

log = typer.Typer(
    help="Look after an event log, or a collection of a cluster.", no_args_is_help=True
)
for _command in (
    collections.create,
    collection_status.status,
    collections.split,
    collections.merge,
    collections.retain,
    collections.compact,
):
    log.command()(_command)
