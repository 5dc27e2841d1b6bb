"""What a pipeline keeps, and where: one frozen object, checked once, from three places.

A value is taken from the first place that has it: the command line, the environment
(``CHANGEFEED_PIPELINE__LATEST__INTERVAL=60``), the TOML file, the default below.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from changefeed.feeds.starts import start_in
from changefeed.observers.settings import RetrySettings
from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import absolute
from changefeed.runtime.settings import (
    MAX_NUMBER,
    AllSettings,
    LogSettings,
    Place,
    Seconds,
    SecondsOrZero,
    Section,
    read_settings,
)

_NAME = r"^[a-z][a-z0-9_]*$"
_HOURLY = (
    "SELECT window.start AS window_start, key, count(*) AS changes FROM changes "
    "GROUP BY window(committed_at, '1 hour'), key"
)
OBSERVER = "observer"
"""What the query of an observer is called, among those of tables."""


class ChangesSettings(Section):
    """The table of every change, which is only appended to."""

    enabled: bool = True
    interval: SecondsOrZero = 5.0
    """How often a batch begins."""


class LatestSettings(Section):
    """The table of the latest state by key and id."""

    enabled: bool = True
    interval: SecondsOrZero = 30.0
    """A merge writes every file again in which a row changes, so it is worth waiting for
    more changes."""


class AggregateSettings(Section):
    """A table of figures by groups of changes; any number of these."""

    name: str = Field(pattern=_NAME, examples=["hourly"])
    """The name of the table."""
    select: str = Field(examples=[_HOURLY])
    """A SELECT with GROUP BY, in SQL of Spark over ``changes``: the columns of a change, and
    ``value``, the parsed body. It selects each expression that it groups by, of a window its
    start."""
    watermark: SecondsOrZero | None = Field(default=None, examples=["2h"])
    """Windows of ``committed_at`` that ended so much before the newest change are forgotten;
    what still comes for them is dropped, and counted. Without one every change counts,
    however late, and Spark keeps all groups. Ranges are not read in step: while a backlog is
    read, a watermark has to allow for how far they are apart."""
    interval: SecondsOrZero = 30.0
    """How often a batch begins."""


class ObserverSettings(Section):
    """What runs on executors beside the tables; named as for hosts."""

    name: str | None = None
    """``module:Class``, a registered name, or an entry point (log, jsonl, count)."""
    options: Mapping[str, Any] = {}
    """Arguments for the observer's constructor."""
    concurrency: int = Field(default=1, ge=1, le=10_000)
    """How many calls of observers of one range to make at once, each with other keys."""
    timeout: Seconds | None = None
    """How long the observer may take for one call before the attempt counts as failed."""
    retry: RetrySettings = RetrySettings.defaults()
    on_failure: Literal["retry", "dead-letter", "stop"] = "retry"
    """What becomes of a change that fails again and again where others succeed: its key waits
    for ever; or it is put to the dead letters, and its key goes on; or the command ends, where
    a host would pause the range: Spark finishes a batch for all ranges or for none."""
    dead_letters: Place = "sqlite:dead-letters.db"
    """``sqlite:FILE`` or ``jsonl:FILE``, where the tasks run; or any other address that leases
    can have."""

    @property
    def ordering(self) -> Literal["key"]:
        return "key"

    @property
    def checkpoint(self) -> str:
        """A change is done when its batch is: Spark keeps the positions."""
        return "batch"


class WebSettings(Section):
    """Liveness, readiness and metrics over HTTP."""

    bind: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65535)
    """Without one there is no server; 0 takes any free port, and the log says which."""


def _absolute(directory: str) -> str:
    """Spark's processes may have another working directory than the user."""
    return directory if "://" in directory else str(absolute(directory))


def _refuse_wrong_time(start: str) -> str:
    start_in(start)  # what else may be wrong with it, the source says
    return start


class PipelineSettings(AllSettings):
    """All settings of a pipeline."""

    model_config = ConfigDict(coerce_numbers_to_str=True)  # Spark's settings are text

    prefix = "CHANGEFEED_PIPELINE__"
    init_command = "changefeed config pipeline"

    feed: str = Field(examples=["eventlog:data/log"])
    """``eventlog:DIRECTORY`` or ``cosmos://HOST/DATABASE/CONTAINER``."""
    directory: Annotated[str, AfterValidator(_absolute)] = Field(examples=["data/tables"])
    """One folder for each table, and ``_checkpoints``."""
    start: Annotated[str, AfterValidator(_refuse_wrong_time)] = "beginning"
    """Where a table without a checkpoint starts: beginning, now, or a time with its zone, not
    in the future; snapshot (Cosmos DB, all versions): the latest version of every item, then
    every version; or where hosts have stopped: ``file:`` and what ``changefeed positions
    export`` has written."""
    body_schema: str | None = Field(default=None, examples=["kind STRING, total DOUBLE"])
    """The columns of bodies in Spark's DDL, or ``variant``; without it they are JSON text.
    The text of one that does not fit is in the column ``rescued``."""
    max_changes: int = Field(default=1_000_000, ge=1, le=MAX_NUMBER)
    """How many changes a batch has at most; of Cosmos DB, transactions."""
    master: str = "local[2,4]"
    """Where Spark runs. The master of spark-submit wins."""
    stop_timeout: SecondsOrZero = 25.0
    """How long a stop waits for the batches that run."""
    spark: Mapping[str, str] = {}
    """Spark's own settings by their names, as in { "spark.driver.memory" = "2g" }."""
    compact_every: int = Field(default=100, ge=1, le=MAX_NUMBER)
    """Compact a table after this many batches, and delete the files that it does not use any
    more."""
    keep_files: Seconds = 604_800.0
    """How old such a file must be, in whole hours: longer than any batch, and any query over a
    table, takes."""
    changes: ChangesSettings = ChangesSettings.defaults()
    latest: LatestSettings = LatestSettings.defaults()
    aggregates: tuple[AggregateSettings, ...] = ()
    observer: ObserverSettings = ObserverSettings.defaults()
    web: WebSettings = WebSettings.defaults()
    log: LogSettings = LogSettings.defaults()

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
        raise UserError(f"two tables have one name ({', '.join(names)}): rename an aggregate")
    return settings
