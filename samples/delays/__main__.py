"""The command line: ``python -m samples.delays DIRECTORY [FILE]``."""

from pathlib import Path
from typing import Annotated

import typer

from feeds.errors import FeedError
from pipeline.errors import PipelineRefused, QueryFailed

from .drawing import draw
from .tables import keep_tables


def main(
    directory: Annotated[Path, typer.Argument(help="What make demo ARGS='--keep …' kept.")],
    file: Annotated[Path, typer.Argument(help="The picture to write.")] = Path("delays.png"),
) -> None:
    """Keep the tables of a year of flights with Spark, and draw the delays by carrier."""
    try:
        kept = keep_tables(directory.expanduser().resolve())
    except (FeedError, PipelineRefused, QueryFailed) as error:
        typer.echo(f"delays: {error}", err=True)
        raise typer.Exit(2) from None
    draw(kept, file)
    typer.echo(f"{kept.changes:,} changes of {kept.flights:,} flights are in {file}")


if __name__ == "__main__":
    typer.run(main)
