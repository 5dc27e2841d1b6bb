"""What a pipeline keeps, and where: one frozen object, read from a TOML file and flags."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .errors import PipelineRefused

_NAME = r"^[a-z][a-z0-9_]*$"
_Column = Annotated[str, Field(pattern=_NAME)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UpkeepSettings(_Settings):
    """Every ``compact_every`` batches small files are put together, and files that are not
    part of the table any more, or never were, are removed once they are ``keep_hours`` old:
    longer than any batch, and any query over the table, takes.
    """

    compact_every: int = Field(default=50, ge=1)
    keep_hours: int = Field(default=168, ge=1)


class ChangesSettings(UpkeepSettings):
    """The table of every change, which is only appended to.

    ``parquet`` is for readers that are Spark: only Spark knows which of its files count, and
    there is no upkeep.
    """

    enabled: bool = True
    format: Literal["delta", "parquet"] = "delta"
    interval: float = Field(default=5.0, ge=0)
    compact_every: int = Field(default=200, ge=1)


class LatestSettings(UpkeepSettings):
    """The table of the latest state by key and id.

    A merge writes every file again in which a row changes, so its interval is the longer
    one.
    """

    enabled: bool = True
    interval: float = Field(default=30.0, ge=0)


class AggregateSettings(UpkeepSettings):
    """A table of counts and sums by window of time and, if wanted, more columns.

    ``by``, ``sums`` and ``where`` are SQL over the columns of a change and ``value``, the
    parsed body. Unless told otherwise there is no ``watermark``: every change counts, however
    late, and Spark keeps all windows. With one, windows are forgotten once they ended so much
    before the newest change, and what still comes for them is dropped (and counted). Ranges
    are not read in step: while a backlog is read, a watermark has to allow for how far they
    are apart.
    """

    name: str = Field(pattern=_NAME)
    window: str
    watermark: str | None = None
    by: Mapping[_Column, str] = {}
    sums: Mapping[_Column, str] = {}
    where: str | None = None
    interval: float = Field(default=30.0, ge=0)

    @model_validator(mode="after")
    def _names_differ(self) -> "AggregateSettings":
        names = ["window_start", "window_end", "changes", *self.by, *self.sums]
        twice = sorted({x for x in names if names.count(x) > 1})
        if twice:
            raise ValueError(f"two columns would have the name {twice[0]!r}: rename one")
        return self


class PipelineSettings(_Settings):
    """All of it. Tables and checkpoints are in ``directory``; intervals are in seconds.

    ``start`` counts for tables that have no checkpoint yet. ``body_schema`` is the DDL of
    bodies, or ``variant``; what does not fit stands in the column ``rescued``.
    """

    feed: str
    directory: str
    start: str = "beginning"
    body_schema: str | None = None
    max_changes: int = Field(default=500_000, ge=1)
    master: str | None = "local[2,4]"
    spark: Mapping[str, str] = {}
    changes: ChangesSettings = ChangesSettings()
    latest: LatestSettings = LatestSettings()
    aggregates: tuple[AggregateSettings, ...] = ()

    def table(self, name: str) -> str:
        return f"{self.directory.rstrip('/')}/{name}"

    def checkpoint(self, name: str) -> str:
        return f"{self.directory.rstrip('/')}/_checkpoints/{name}"


def load_settings(file: Path | None, flags: Mapping[str, Any]) -> PipelineSettings:
    """Read a TOML file; flags that are not ``None`` go before it.

    Raise ``PipelineRefused``, naming each setting that is wrong.
    """
    try:
        found = {} if file is None else tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PipelineRefused(f"the settings in {file} cannot be read: {error}") from error
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = PipelineSettings.model_validate({**found, **given})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in error.errors()]
        raise PipelineRefused("\n  ".join(["wrong settings", *lines])) from None
    names = ["changes", "latest", *(x.name for x in settings.aggregates)]
    if len(set(names)) < len(names):
        raise PipelineRefused(
            f"two tables have one name ({', '.join(names)}): rename an aggregate"
        )
    if "://" in settings.directory:
        return settings
    here = str(Path(settings.directory).expanduser().absolute())
    return settings.model_copy(update={"directory": here})
