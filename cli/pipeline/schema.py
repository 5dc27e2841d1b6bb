"""``changefeed pipeline schema``: what columns the newest bodies have."""

from collections.abc import Mapping

import typer

from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, print_whole
from changefeed.cli.pipeline.spark_errors import explaining_spark
from changefeed.pipeline.body_shape import BodySchema, body_schema_of


def show(feed: str, changes: int, *, json: bool) -> None:
    """Print the schema that fits most of the newest bodies, and what does not fit."""
    with explaining_spark():
        from changefeed.pipeline.source.newest import newest_bodies  # noqa: PLC0415 - pyspark

        found = body_schema_of(newest_bodies(feed, changes))
    if json:
        typer.echo(as_json(found, indented=True))
        return
    typer.echo(found.body_schema)
    if found.misfits:
        _show_misfits(found)


def _show_misfits(found: BodySchema) -> None:
    rows = (
        (x.path, x.column or "none", _counted(x.types), f"{x.misfits:,} of {x.of:,}")
        for x in found.misfits
    )
    typer.echo(
        f"\nOf {found.bodies:,} bodies these do not fit: they go to the column rescued. A "
        f"column of STRING takes any value."
    )
    print_whole(a_table("path", "column", "types", "do not fit", rows=rows))


def _counted(types: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in types.items())
