"""The command line: ``python -m samples.delays DIRECTORY [FILE]``."""

from pathlib import Path
from typing import Annotated

import typer

from changefeed.feeds.errors import FeedError
from changefeed.runtime.errors import UserError

from .drawing import draw
from .tables import NoTable, NotKept, days, departures, keep_tables, settings_of


def main(
    directory: Annotated[Path, typer.Argument(help="What make demo ARGS='--keep …' kept.")],
    file: Annotated[Path, typer.Argument(help="The picture to write.")] = Path("delays.png"),
) -> None:
    """Draw the delays by carrier from the tables of a year of flights."""
    directory = directory.expanduser().resolve()
    try:
        keep_tables(directory)
        found = departures(days(settings_of(directory)))
        draw(found, file)
    except (FeedError, UserError, NoTable, NotKept, OSError) as error:
        typer.echo(f"delays: {error}", err=True)
        raise typer.Exit(2) from None
    count = sum(x.count for x in found.values())
    typer.echo(f"{count:,} departures of {len(found)} carriers are in {file}")


if __name__ == "__main__":
    typer.run(main)
