"""How far each table of a pipeline is, without starting Spark."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from changefeed.pipeline.checkpoint_dir import committed, is_owned
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import mark_of
from changefeed.pipeline.source.reader import Access


class RangeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is read, or will be, from a position on; ``lag`` counts what lies there."""

    range: str
    position: str
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
    """Look at everything that the settings name. Raise what the feed raises, and
    ``PipelineRefused`` where there are no tables.
    """
    directory = settings.directory
    if "://" not in directory and not Path(directory).is_dir():
        raise PipelineRefused(
            f"there are no tables at {directory} yet: changefeed pipeline run makes the "
            "directory, or check the name"
        )
    with query_advice(), closing(open_access(settings.feed)) as access:
        return [_status(settings, name, access) for name in settings.queries]


def _ranges(offset: Offset, access: Access) -> tuple[RangeStatus, ...]:
    """Return the status of the ranges of an offset, and of their children."""
    access.check_feed(offset)
    marks, new = dict(offset.marks), dict(offset.marks)
    lags = dict.fromkeys(marks, 0)
    while new:
        # An ended range whose position was taken over has handed on all it had.
        asked = {
            x: mark
            for x, mark in new.items()
            if not (mark.ended and access.children_inherit_positions)
        }
        sights = access.look(asked)
        lags |= {x: sight.lag for x, sight in sights.items()}
        new = {
            x.range.id: mark_of(access, x.range, x.start, 0)
            for sight in sights.values()
            for x in sight.children or ()
            if x.range.id not in marks
        }
        marks |= new
    return tuple(
        RangeStatus(range=x, position=mark.position, lag=lags[x], ended=mark.ended)
        for x, mark in sorted(marks.items())
    )


def _status(settings: PipelineSettings, name: str, access: Access) -> TableStatus:
    checkpoint = settings.checkpoint(name)
    found, running = committed(checkpoint), is_owned(checkpoint)
    if found is None:
        return TableStatus(table=name, batch=None, lag=None, running=running)
    ranges = _ranges(found.offset, access)
    return TableStatus(
        table=name,
        batch=found.batch,
        lag=sum(x.lag for x in ranges),
        running=running,
        ranges=ranges,
    )
