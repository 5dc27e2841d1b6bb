"""What of a row is compacted next, and how: decided from numbers alone.

A run goes from where the last one ended to an object with a table, so that the ends of all
partitions are known there, or to the seal. Where it ends follows from what is in the row and
from the settings: so a run that was begun and not finished is made the same way again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from changefeed.log.catalog.catalog import Catalog, Row
from changefeed.log.core_settings import CoreSettings
from changefeed.log.format.flush import Ends
from changefeed.log.format.pack import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """Where a run may end: after object ``last``, with the partitions at ``ends``.

    ``bytes`` are those of records from the run's beginning up to there.
    """

    last: int
    ends: Ends
    bytes: int
    final: bool = False


def rows_of(catalog: Catalog, broker: str, incarnation: str) -> Iterator[tuple[int, Row]]:
    """Yield the rows that a broker compacts, with their eras: the oldest first.

    That is its own row of the newest era. A row of an era that is over is compacted by the
    broker of the same name, or by one that its place in the row's era names: each object is
    read once, whatever the number of homes its partitions have. Two that do it at once, since
    they know different catalogs, do no harm.
    """
    newest = catalog.era
    if newest is None:
        return
    there = [x.broker for x in newest.rows]
    for era in catalog.eras:
        for place, row in enumerate(era.rows):
            if era is newest:
                ours = (row.broker, row.incarnation) == (broker, incarnation)
            else:
                ours = _compactor(row, place, there) == broker
            if ours and not row.is_gone:
                yield era.number, row


def _compactor(row: Row, place: int, there: Sequence[str]) -> str:
    if not there:
        return ""
    return row.broker if row.broker in there else there[place % len(there)]


def is_whole(end: RunEnd, first: int, settings: CoreSettings) -> bool:
    """Whether a run has as much as one is to have, so that it ends there at the latest."""
    objects = end.last - first + 1
    assert objects > 0, f"a run from {first} on ends at {end.last}"
    return end.bytes >= settings.compaction_bytes or objects >= settings.compaction_objects


def bytes_between(before: Ends, after: Ends) -> int:
    """Return the bytes of records that a row has got from one object to another."""
    return sum(x.stored for x in after.values()) - sum(x.stored for x in before.values())


def shares(before: Ends, after: Ends, starts: Mapping[Key, int], most: int) -> list[list[Key]]:
    """Return which partitions to compact, as many together as make so many bytes.

    Those without new records are left out, and those whose records are deleted. They are in
    the order in which flushes have them, so that what is read of each is a slice of it.
    """
    found: list[list[Key]] = []
    size = most
    for key in sorted(after):
        new = after[key].last - max(last_in(before, key), starts.get(key, 0))
        if new <= 0:
            continue
        added = after[key].stored - (before[key].stored if key in before else 0)
        if size + added > most:
            found.append([])
            size = 0
        found[-1].append(key)
        size += added
    assert all(found), "a share without partitions is nothing to read for"
    return found


def last_in(ends: Ends, key: Key) -> int:
    return ends[key].last if key in ends else 0
