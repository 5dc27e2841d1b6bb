"""What a pipeline keeps, and where: one frozen object, checked once, from three places.

A value is taken from the first place that has it: the command line, the environment
(``CHANGEFEED_PIPELINE__LATEST__INTERVAL=60``), the TOML file, the default below.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from changefeed.observers.middleware.retry import RetrySettings
from changefeed.pipeline.errors import PipelineRefused
from changefeed.runtime.settings import AllSettings, LogSettings, Section, read_settings

_NAME = r"^[a-z][a-z0-9_]*$"
_Column = Annotated[str, Field(pattern=_NAME)]
OBSERVER = "observer"
"""What the query of an observer is called, among those of tables."""


class UpkeepSettings(Section):
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


class ObserverSettings(Section):
    """What ``observe`` runs on executors. The names and their meaning are the host's.

    ``stop`` ends the command when the attempts are used up, where a host would pause the
    range: Spark finishes a batch for all ranges or for none.
    """

    name: str | None = None
    options: Mapping[str, Any] = {}
    concurrency: int = Field(default=1, ge=1)
    timeout: float | None = Field(default=None, gt=0)
    retry: RetrySettings = RetrySettings()
    on_failure: Literal["retry", "dead-letter", "stop"] = "retry"
    reopen_delay: float = Field(default=30.0, gt=0)
    dead_letters: str = "sqlite:dead-letters.db"
    interval: float = Field(default=0.0, ge=0)

    @property
    def checkpoint(self) -> str:
        """A change is done when its batch is: Spark keeps the positions."""
        return "batch"


class WebSettings(Section):
    """Liveness, readiness and metrics over HTTP, if a port is named; 0 takes a free one."""

    bind: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65535)


class PipelineSettings(AllSettings):
    """All of it. Tables and checkpoints are in ``directory``; intervals are in seconds.

    ``start`` counts for tables that have no checkpoint yet. ``body_schema`` is the DDL of
    bodies, or ``variant``; what does not fit stands in the column ``rescued``.
    ``stop_timeout`` is how long a stop waits for the batches that run.
    """

    model_config = ConfigDict(coerce_numbers_to_str=True)  # Spark's settings are text

    prefix = "CHANGEFEED_PIPELINE__"
    init_command = "changefeed pipeline init-config"

    feed: str
    directory: str
    start: str = "beginning"
    body_schema: str | None = None
    max_changes: int = Field(default=500_000, ge=1)
    master: str | None = "local[2,4]"
    stop_timeout: float = Field(default=25.0, ge=0)
    spark: Mapping[str, str] = {}
    changes: ChangesSettings = ChangesSettings()
    latest: LatestSettings = LatestSettings()
    aggregates: tuple[AggregateSettings, ...] = ()
    observer: ObserverSettings = ObserverSettings()
    web: WebSettings = WebSettings()
    log: LogSettings = LogSettings()

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables that are kept."""
        return [
            *(["changes"] if self.changes.enabled else []),
            *(["latest"] if self.latest.enabled else []),
            *(x.name for x in self.aggregates),
        ]

    @property
    def queries(self) -> Sequence[str]:
        """The names of all that may have a checkpoint: tables, and the observer."""
        return [*self.tables, *([] if self.observer.name is None else [OBSERVER])]

    def table(self, name: str) -> str:
        return f"{self.directory.rstrip('/')}/{name}"

    def checkpoint(self, name: str) -> str:
        return f"{self.directory.rstrip('/')}/_checkpoints/{name}"


def load_settings(file: Path | None, flags: Mapping[str, Any]) -> PipelineSettings:
    """Merge a TOML file, the environment and nested ``flags`` into settings.

    Raise ``UserError``, which names each setting that is wrong.
    """
    settings = read_settings(PipelineSettings, file, flags)
    names = ["changes", "latest", OBSERVER, *(x.name for x in settings.aggregates)]
    if len(set(names)) < len(names):
        raise PipelineRefused(
            f"two tables have one name ({', '.join(names)}): rename an aggregate"
        )
    return _absolute(settings)


def _absolute(settings: PipelineSettings) -> PipelineSettings:
    """Spark's processes may have another working directory than the user."""
    scheme, _, place = settings.observer.dead_letters.partition(":")
    letters = f"{scheme}:{Path(place).expanduser().absolute()}" if place else scheme
    observer = settings.observer.model_copy(update={"dead_letters": letters})
    found = settings.model_copy(update={"observer": observer})
    if "://" in settings.directory:
        return found
    here = str(Path(settings.directory).expanduser().absolute())
    return found.model_copy(update={"directory": here})
