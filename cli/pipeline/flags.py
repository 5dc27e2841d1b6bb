"""The flags of the commands of a pipeline, and the settings they make."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from changefeed.cli.flags import ObserverFlags, Sets, SettingsFlags
from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Lease
from changefeed.pipeline.checkpoint_dir import begun
from changefeed.pipeline.lease_offsets import offset_of, read_leases
from changefeed.pipeline.settings import PipelineSettings, load_settings
from changefeed.pipeline.source.addresses import open_access

FROM_LEASES: Final = typer.Option(
    "--from-leases", help="Start there where hosts have stopped: sqlite:FILE, …"
)


@dataclass(frozen=True, kw_only=True)
class PipelineFlags(SettingsFlags):
    """The flags of all commands of a pipeline."""

    feed: Annotated[
        str | None,
        typer.Option(
            "--feed", help="Where changes come from: eventlog:DIRECTORY, brokers://…, …"
        ),
        Sets(("feed",)),
    ] = None
    directory: Annotated[
        str | None,
        typer.Option("--directory", help="Where tables and checkpoints are kept."),
        Sets(("directory",)),
    ] = None

    def settings(self) -> PipelineSettings:
        """Merge flags, environment and file. Raise ``UserError`` for what is wrong in them."""
        return load_settings(self.config, self.nested())


@dataclass(frozen=True, kw_only=True)
class QueryFlags(PipelineFlags):
    """The flags of commands that run queries."""

    from_leases: Annotated[str | None, FROM_LEASES] = None


@dataclass(frozen=True, kw_only=True)
class ObserveFlags(QueryFlags, ObserverFlags):
    pass


def from_leases(
    settings: PipelineSettings, leases: str | None, names: Sequence[str]
) -> tuple[PipelineSettings, int]:
    """Let what has no checkpoint yet start where hosts have stopped.

    ``names`` are the queries it may count for. Return their last epoch, too, 0 for none.
    """
    if leases is None or all(begun(settings.checkpoint(x)) for x in names):
        return settings, 0

    async def read() -> Sequence[Lease]:
        async with open_container(leases, OpenOptions(must_exist=True)) as container:
            return await read_leases(container)

    found = asyncio.run(read())
    with closing(open_access(settings.feed)) as access:
        start = offset_of(found, access).as_text()
    return settings.model_copy(update={"start": start}), max(x.epoch for x in found)
