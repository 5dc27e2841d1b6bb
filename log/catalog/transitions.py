"""From one catalog to the next. Pure; who creates the number first has decided.

Every function returns the catalog that follows, or the same one where there is nothing to
do: so each may be repeated after an answer that was lost, and by anybody.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.catalog.catalog import (
    MAX_SECONDS,
    Catalog,
    Collection,
    Cuts,
    Era,
    Member,
    Row,
)
from changefeed.log.catalog.names import check_name, natural_order
from changefeed.log.catalog.ranges import Ranges, ranges_of
from changefeed.log.hashing import MAX_PARTS, VIRTUAL_PARTS


def new_collection(
    catalog: Catalog, name: str, *, parts: int, identity: str, now_us: int
) -> Collection:
    """Return a collection whose partitions are open at once where an era is open.

    Where that era is over by then, they are there, without records. Refuse a wrong name.
    """
    check_name(name, "collection")
    if not 1 <= parts <= MAX_PARTS:
        raise FeedRefused(f"a collection has 1 to {MAX_PARTS} parts, not {parts}")
    era = catalog.era
    opened_in = 1 if era is None else era.number + (era.state != "open")
    return Collection(
        name=name, identity=identity, parts=parts, created_us=now_us, since=opened_in
    )


def with_retention(
    collection: Collection, *, seconds: float | None, bytes_: int | None
) -> Collection:
    """Keep so many seconds or bytes of a collection's records; ``None``: all."""
    if seconds is not None and not 1 <= seconds <= MAX_SECONDS:
        raise FeedRefused(
            f"records are kept for 1 to {MAX_SECONDS:,} seconds, not for {seconds:g}; to keep "
            f"them for ever, give no time"
        )
    if bytes_ is not None and not 0 <= bytes_ < 2**63:
        raise FeedRefused(f"what is kept is a number of bytes below 2**63, not {bytes_}")
    return replace(collection, retain_seconds=seconds, retain_bytes=bytes_)


def with_revisions(catalog: Catalog, collections: Iterable[Collection]) -> Catalog:
    """Say which revisions collections have by now, if they were ever changed."""
    said = {x.name: max(x.revision, catalog.revisions.get(x.name, 1)) for x in collections}
    newer = {name: n for name, n in said.items() if n > catalog.revisions.get(name, 1)}
    if not newer:
        return catalog
    return _following(catalog, revisions={**catalog.revisions, **newer})


def with_kept_from(catalog: Catalog, kept_from: Mapping[tuple[int, str], int]) -> Catalog:
    """Say from where on the objects of rows are kept; what was said is never taken back."""

    def kept(era: int, row: Row) -> Row:
        number = kept_from.get((era, row.broker), 0)
        return row if number <= row.kept_from else replace(row, kept_from=number)

    eras = tuple(
        replace(e, rows=tuple(kept(e.number, x) for x in e.rows)) for e in catalog.eras
    )
    return catalog if eras == catalog.eras else _following(catalog, eras=eras)


def with_split(catalog: Catalog, name: str, range_id: RangeId | None = None) -> Catalog:
    """Cut a partition, or all of a collection, in halves. They open with the next era.

    Refuse it while another change of shape waits for that: to repeat it changes nothing.
    """
    ranges = _at_rest(catalog, name)
    chosen = None if range_id is None else _interval(ranges, range_id)
    cuts = []
    for part, lows in enumerate(ranges.cuts):
        ends = [*lows[1:], VIRTUAL_PARTS]
        halves = [
            low + (end - low) // 2
            for low, end in zip(lows, ends, strict=True)
            if end - low > 1 and chosen in (None, (part, low))
        ]
        cuts.append(tuple(sorted({*lows, *halves})))
    assert all({*x} <= {*y} for x, y in zip(ranges.cuts, cuts, strict=True)), (
        f"a split keeps each border of {ranges.cuts}: {cuts}"
    )
    if tuple(cuts) == ranges.cuts:
        raise FeedRefused(
            f"{range_id or name} has single virtual parts already: it cannot be split further"
        )
    return _reshaping(catalog, name, tuple(cuts))


def with_merge(catalog: Catalog, name: str, range_id: RangeId | None = None) -> Catalog:
    """Make one partition of two that lie beside each other, or pair by pair of all.

    ``range_id`` names the first of two. They open as one with the next era; else as
    ``with_split``.
    """
    ranges = _at_rest(catalog, name)
    chosen = None if range_id is None else _interval(ranges, range_id)
    cuts = []
    for part, lows in enumerate(ranges.cuts):
        if chosen is None:
            cuts.append(lows[::2])
        elif chosen[0] == part:
            after = lows.index(chosen[1]) + 1
            cuts.append((*lows[:after], *lows[after + 1 :]))
        else:
            cuts.append(lows)
    assert all(y and {*x} >= {*y} for x, y in zip(ranges.cuts, cuts, strict=True)), (
        f"a merge makes no border that {ranges.cuts} has not: {cuts}"
    )
    if tuple(cuts) == ranges.cuts:
        raise FeedRefused(
            f"{range_id or name} has nothing to merge with: its parts are whole, or it is "
            f"the last partition of its part"
        )
    return _reshaping(catalog, name, tuple(cuts))


def _at_rest(catalog: Catalog, name: str) -> Ranges:
    ranges = ranges_of(catalog, name)
    if name in catalog.reshaping:
        raise FeedRefused(
            f"the partitions of {name} are being changed already: try again when the next era "
            f"is open"
        )
    return ranges


def _interval(ranges: Ranges, range_id: RangeId) -> tuple[int, int]:
    found = ranges.partition(range_id)
    if found.era != ranges.newest:
        raise FeedRefused(f"{range_id} is of an era that is over: name an open partition")
    return found.part, found.low


def _reshaping(catalog: Catalog, name: str, cuts: Cuts) -> Catalog:
    return _following(catalog, reshaping={**catalog.reshaping, name: cuts})


def with_member(
    catalog: Catalog, broker: str, member: Member, *, again: bool = False
) -> Catalog:
    """Let others ask a broker for signs of life. The last one started under a name has it.

    ``again``: this one was there before, so one that has the name by now started later.
    """
    there = catalog.members.get(broker)
    if there == member or (again and there is not None):
        return catalog
    return _following(catalog, members={**catalog.members, broker: member})


def without_members(catalog: Catalog, gone: Container[str]) -> Catalog:
    """Ask brokers no more for signs of life that have left or died."""
    left = {name: x for name, x in catalog.members.items() if name not in gone}
    return catalog if left == catalog.members else _following(catalog, members=left)


def open_first_era(catalog: Catalog, rows: Iterable[Row], now_us: int) -> Catalog:
    """Open era 1, if there is none yet."""
    if catalog.era is not None:
        return catalog
    return _opened(catalog, (), in_order(rows), now_us)


def begin_ending(catalog: Catalog, era: int, planned: Iterable[Row]) -> Catalog:
    """Step one of three: say that an era ends, and who will have the next."""
    now = catalog.era
    if now is None or now.number != era or now.state != "open":
        return catalog
    ending = replace(now, state="ending", planned=in_order(planned))
    return _following(catalog, eras=(*catalog.eras[:-1], ending))


def close_and_open(
    catalog: Catalog, era: int, sealed: Mapping[str, int], now_us: int
) -> Catalog:
    """Step three: close an era, and open the next.

    ``sealed`` has, for each broker of the era, the number of its seal. The next era has the
    shapes and the collections that the catalog says by now.
    """
    ending = catalog.era
    if ending is None or ending.number != era or ending.state != "ending":
        return catalog
    assert sealed.keys() == {x.broker for x in ending.rows}, (
        f"era {era} has a row of each of its brokers: {sealed.keys()}"
    )
    if any(sealed[x.broker] < x.kept_from for x in ending.rows):
        return catalog  # a seal where an object had been deleted ends nothing
    rows = tuple(replace(x, sealed_at=sealed[x.broker]) for x in ending.rows)
    closed = replace(ending, state="closed", rows=rows, planned=())
    return _opened(catalog, (*catalog.eras[:-1], closed), ending.planned, now_us)


def _opened(
    catalog: Catalog, eras: tuple[Era, ...], rows: tuple[Row, ...], now_us: int
) -> Catalog:
    opened = Era(
        number=eras[-1].number + 1 if eras else 1,
        began_us=max([now_us, *(x.began_us for x in eras[-1:])]),
        rows=rows,
        reshaped=catalog.reshaping,
    )
    return _following(catalog, eras=(*eras, opened), reshaping={})


def in_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    ordered = tuple(sorted(rows, key=lambda x: natural_order(x.broker)))
    assert len({x.broker for x in ordered}) == len(ordered), f"a broker has one row: {ordered}"
    return ordered


def _following(catalog: Catalog, **changed: Any) -> Catalog:
    following = replace(catalog, number=catalog.number + 1, **changed)
    assert len(following.eras) >= len(catalog.eras), f"{catalog.number} loses an era"
    return following
