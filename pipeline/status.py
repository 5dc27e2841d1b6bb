"""How far each table of a pipeline is, without starting Spark."""

from collections.abc import Sequence
from dataclasses import dataclass

from .checkpoints import committed
from .settings import PipelineSettings
from .source.access import Access
from .source.opening import open_access


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """``batch`` is the last one done, ``lag`` counts changes in the ranges being read."""

    table: str
    batch: int | None
    ranges: int
    lag: int | None


def tables_status(settings: PipelineSettings) -> Sequence[TableStatus]:
    """Look at every table that the settings name. Raise what the feed raises."""
    names = [
        *(["changes"] if settings.changes.enabled else []),
        *(["latest"] if settings.latest.enabled else []),
        *(x.name for x in settings.aggregates),
    ]
    access = open_access(settings.feed)
    try:
        return [_status(settings, name, access) for name in names]
    finally:
        access.close()


def _status(settings: PipelineSettings, name: str, access: Access) -> TableStatus:
    found = committed(settings.checkpoint(name))
    if found is None:
        return TableStatus(table=name, batch=None, ranges=0, lag=None)
    access.recall(found.offset)
    sights = access.look(found.offset.marks)
    return TableStatus(
        table=name,
        batch=found.batch,
        ranges=len(found.offset.marks),
        lag=sum(x.lag for x in sights.values()),
    )
