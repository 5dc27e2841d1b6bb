"""What the commands of a pipeline are told, and the settings that makes."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.flags import nested, put
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Lease
from changefeed.pipeline.checkpoint_dir import begun
from changefeed.pipeline.lease_offsets import offset_of, read_leases
from changefeed.pipeline.settings import PipelineSettings, load_settings
from changefeed.pipeline.source.addresses import open_access

Directory = Annotated[
    str | None, typer.Option("--directory", help="Where tables and checkpoints are kept.")
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start", help="Where to start without a checkpoint: beginning, now, a time."
    ),
]
FromLeases = Annotated[
    str | None,
    typer.Option("--from-leases", help="Start there where hosts have stopped: sqlite:FILE, …"),
]
Schema = Annotated[
    str | None,
    typer.Option("--body-schema", help="Columns of bodies, as in 'n INT, who STRING'."),
]
Port = Annotated[
    int | None,
    typer.Option("--metrics-port", help="Serve metrics and health there (web.port)"),
]
Submitted = Annotated[
    bool, typer.Option("--submitted", hidden=True, help="spark-submit says where to run.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The flags of one command, as given."""

    config: Path | None = None
    feed: str | None = None
    directory: str | None = None
    start: str | None = None
    body_schema: str | None = None
    metrics_port: int | None = None
    observer: str | None = None
    options: Sequence[str] = ()
    sets: Sequence[str] = ()

    def settings(self) -> PipelineSettings:
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        flags = nested(self.sets, self.options)
        said = (
            (["feed"], self.feed),
            (["directory"], self.directory),
            (["start"], self.start),
            (["body_schema"], self.body_schema),
            (["web", "port"], self.metrics_port),
            (["observer", "name"], self.observer),
        )
        for name, given in said:
            if given is not None:
                put(flags, name, given)
        return load_settings(self.config, flags)


def from_leases(
    settings: PipelineSettings, leases: str | None, names: Sequence[str]
) -> tuple[PipelineSettings, int]:
    """Let what has no checkpoint yet start where hosts have stopped.

    ``names`` are the queries it may count for. Return their last epoch, too, 0 for none.
    """
    if leases is None or all(begun(settings.checkpoint(x)) for x in names):
        return settings, 0

    async def read() -> Sequence[Lease]:
        async with open_container(leases) as container:
            return await read_leases(container)

    found = asyncio.run(read())
    with closing(open_access(settings.feed)) as access:
        start = offset_of(found, access).as_text()
    return settings.model_copy(update={"start": start}), max(x.epoch for x in found)
