"""How far each table of a pipeline is, without starting Spark."""

from collections.abc import Sequence
from contextlib import closing

import msgspec

from .checkpoints import committed, is_owned
from .settings import PipelineSettings
from .source.access import Access
from .source.opening import open_access


class RangeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is being read, up to a position. ``lag`` counts the changes behind it."""

    range: str
    continuation: str
    lag: int
    ended: bool


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``batch`` is the last one done. ``running``: a pipeline of this machine keeps it."""

    table: str
    batch: int | None
    lag: int | None
    running: bool
    ranges: tuple[RangeStatus, ...] = ()


def tables_status(settings: PipelineSettings) -> Sequence[TableStatus]:
    """Look at everything that the settings name. Raise what the feed raises."""
    with closing(open_access(settings.feed)) as access:
        return [_status(settings, name, access) for name in settings.queries]


def _status(settings: PipelineSettings, name: str, access: Access) -> TableStatus:
    checkpoint = settings.checkpoint(name)
    found, running = committed(checkpoint), is_owned(checkpoint)
    if found is None:
        return TableStatus(table=name, batch=None, lag=None, running=running)
    access.recall(found.offset)
    sights = access.look(found.offset.marks)
    ranges = tuple(
        RangeStatus(
            range=x,
            continuation=mark.continuation,
            lag=sights[x].lag,
            ended=mark.ended,
        )
        for x, mark in sorted(found.offset.marks.items())
    )
    return TableStatus(
        table=name,
        batch=found.batch,
        lag=sum(x.lag for x in ranges),
        running=running,
        ranges=ranges,
    )
