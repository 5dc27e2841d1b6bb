"""``changefeed pipeline export``: positions, for ``changefeed positions import``."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.io.report import remark, write_document
from changefeed.cli.pipeline.flags import PipelineFlags
from changefeed.leases.lease import Lease
from changefeed.leases.position_file import written
from changefeed.pipeline.checkpoint_dir import base_epoch, committed, last_begun, owned
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.lease_offsets import leases_of
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice


@with_flags
def export(
    table: Annotated[
        str | None, typer.Argument(help="Whose positions: changes, observer, … if several are.")
    ] = None,
    *,
    flags: PipelineFlags,
) -> None:
    """Print where a stopped query is, so that hosts continue there.

    changefeed pipeline export … | changefeed positions import -
    """
    with exit_on_error():
        settings = flags.settings()
        checkpoint = settings.checkpoint(table or _the_only_one(settings))
        if committed(checkpoint) is None:
            raise PipelineRefused(f"{checkpoint} has no batch that is done: nothing to export")
        with owned(checkpoint):
            write_document(written(_exported(checkpoint, settings.feed)) + b"\n")


def _exported(checkpoint: str, feed: str) -> list[Lease]:
    done, begun = committed(checkpoint), last_begun(checkpoint)
    assert done is not None, "asked before"
    if begun > done.batch:
        remark(
            f"batch {begun} was begun and is not done: what of it an observer has had comes "
            f"again. To have none twice, let changefeed pipeline observe --once end it first"
        )
    epoch = base_epoch(checkpoint) + 1 + begun
    with query_advice(), closing(open_access(feed)) as access:
        return [replace(x, epoch=epoch) for x in leases_of(done.offset, access)]


def _the_only_one(settings: PipelineSettings) -> str:
    found = sorted(
        x.parent.name for x in Path(settings.checkpoint("x")).parent.glob("*/commits")
    )
    if len(found) != 1:
        names = f"of {', '.join(found)}" if found else "there is none"
        raise PipelineRefused(f"say which table's positions: {names} in {settings.directory}")
    return found[0]
