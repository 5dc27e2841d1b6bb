"""How far the tables of a pipeline are: one document, from checkpoints or from the queries.

``tables_status`` reads checkpoints, without Spark, whether or not a pipeline runs. The
process of a pipeline knows the same of its own queries (``progress``), and why one waits.
"""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.checkpoint_dir import committed, is_owned
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.offsets import Mark, Offset
from changefeed.pipeline.source.planning import mark_of
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.errors import UserError


class RangeToRead(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is read, or will be, from a position on; ``lag`` counts what lies there."""

    range: str
    position: str
    lag: int
    ended: bool


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``batch`` is the last one done, and ``lag`` the sum of its ranges.

    ``running``: a pipeline of this machine keeps it. ``waits_for`` is why its query failed
    and will be started again, ``None`` while it runs.
    """

    table: str
    running: bool
    batch: int | None = None
    lag: int | None = None
    waits_for: str | None = None
    ranges: tuple[RangeToRead, ...] = ()


class TablesStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All tables of a pipeline, in the order of its settings."""

    tables: tuple[TableStatus, ...]

    @property
    def problems(self) -> list[str]:
        return [f"{x.table}: {x.waits_for}" for x in self.tables if x.waits_for is not None]


def tables_status(settings: PipelineSettings) -> TablesStatus:
    """Look at everything that the settings name. Raise what the feed raises, and
    ``UserError`` where there are no tables.
    """
    directory = settings.directory
    if "://" not in directory and not Path(directory).is_dir():
        if Path(directory).exists():
            raise UserError(f"{directory} is a file. Give the directory of the tables")
        raise UserError(
            f"there are no tables at {directory} yet: changefeed pipeline run makes the "
            "directory, or check the name"
        )
    with query_advice(), closing(open_access(settings.feed)) as access:
        return TablesStatus(
            tables=tuple(
                _table(name, settings.checkpoint(name), access) for name in settings.queries
            )
        )


def ranges_to_read(
    marks: Mapping[RangeId, Mark], lags: Mapping[RangeId, int]
) -> tuple[RangeToRead, ...]:
    return tuple(
        RangeToRead(range=x, position=mark.position, lag=lags[x], ended=mark.ended)
        for x, mark in sorted(marks.items())
    )


def _table(name: str, checkpoint: str, access: Access) -> TableStatus:
    found, running = committed(checkpoint), is_owned(checkpoint)
    if found is None:
        return TableStatus(table=name, running=running)
    ranges = _ranges(found.offset, access)
    return TableStatus(
        table=name,
        running=running,
        batch=found.batch,
        lag=sum(x.lag for x in ranges),
        ranges=ranges,
    )


def _ranges(offset: Offset, access: Access) -> tuple[RangeToRead, ...]:
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
    return ranges_to_read(marks, lags)
