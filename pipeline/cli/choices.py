"""What the commands of a pipeline are told, and the settings that makes."""

import asyncio
import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from leases.lease import Lease
from leases.opening import open_container
from pipeline.checkpoints import begun
from pipeline.errors import PipelineRefused
from pipeline.positions import offset_of, read_leases
from pipeline.settings import PipelineSettings, load_settings, merged
from pipeline.source.opening import open_access

Config = Annotated[
    Path | None, typer.Option("--config", help="A TOML file with settings (see init-config).")
]
Feed = Annotated[
    str | None,
    typer.Option("--feed", help="Where changes come from: eventlog:DIRECTORY, cosmos://…"),
]
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
Observer = Annotated[
    str | None,
    typer.Option("--observer", help="What happens to changes: module:Class, log, jsonl, ..."),
]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="An argument for the observer."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any setting (see init-config)."),
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
        """Merge flags and file. Raise ``PipelineRefused`` for what is wrong in them."""
        single = {
            "feed": self.feed,
            "directory": self.directory,
            "start": self.start,
            "body_schema": self.body_schema,
        }
        flags: Mapping[str, Any] = {
            x: given for x, given in single.items() if given is not None
        }
        for text in self.sets:
            flags = merged(flags, _setting(text))
        if self.metrics_port is not None:
            flags = merged(flags, {"web": {"port": self.metrics_port}})
        if self.observer is not None:
            flags = merged(flags, {"observer": {"name": self.observer}})
        for text in self.options:
            key, value = _pair(text, "--option", "key=value")
            flags = merged(flags, {"observer": {"options": {key: _parsed(value)}}})
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


def _setting(text: str) -> Mapping[str, Any]:
    """Read a value as TOML does; what is none is text."""
    path, value = _pair(text, "--set", "section.key=value")
    try:
        return tomllib.loads(f"{path} = {value}")
    except tomllib.TOMLDecodeError:
        pass
    try:
        return tomllib.loads(f"{path} = {json.dumps(value)}")
    except tomllib.TOMLDecodeError:
        raise PipelineRefused(f"--set {text}: {path!r} is no name of a setting") from None


def _pair(text: str, flag: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise PipelineRefused(f"{flag} {text}: write it as {form}")
    return key, value


def _parsed(text: str) -> object:
    """Read numbers, true, false and the like as JSON does; the rest is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
