"""Which ranges are too much for one host, and into how many parts each is to be split.

A pure function of what was listed, like the plan, so that all hosts see the same; the owner of
such a range splits it. A range is split where

* it keeps its owner busy for ``MIN_BUSY`` of the time at least, and
* that is more than ``TOLERANCE`` times what one host is to have of all loads.

Loads may be wrong, so nothing depends on them alone:

* of one range of the feed, one lease at a time is split, the heaviest. Its parts carry the
  mark ``cooling``: until each of them has had an owner for a cooldown, no other lease of that
  range is;
* none is split while a lease of its range of the feed is paused (an operator may be splitting
  or merging it), is asked for, or has not been read yet;
* of all leases, no more than ``PARTS_EACH`` for each host are of parts of ranges.

So a fleet whose loads say anything at any time ends with that many parts.

Limits: parts of one busy key are no less busy. They stay split, and use up the bound.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from operator import itemgetter
from typing import Final

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.lease import HostName, Lease
from changefeed.leases.load_plan import TOLERANCE

MIN_BUSY: Final = 0.5
"""Busy seconds in each second: a range that costs less is left as it is."""
PARTS_EACH: Final = 2
"""How many parts of ranges there may be for each host."""
_MAX_AT_ONCE: Final = 8  # a load says no more than that one task is busy: see what parts need


def hot_ranges(
    leases: Iterable[Lease],
    hosts: Collection[HostName],
    ranges: Collection[FeedRange],
) -> Mapping[RangeId, int]:
    """Return what is to be split, and into how many parts.

    ``leases`` has each once. ``ranges`` are those that the feed lists: what has a lease and is
    none of these is a part. Without any, nothing is split.
    """
    if not ranges or not hosts:
        return {}
    listed = {x.id for x in ranges}
    open_leases = sorted((x for x in leases if not x.ended), key=lambda x: x.range_id)
    parts = [x for x in open_leases if x.range_id not in listed]
    room = PARTS_EACH * len(hosts) - len(parts)
    unsettled = [x.range for x in open_leases if not _is_settled(x)]
    found: dict[RangeId, int] = {}
    for lease, shares in _too_heavy(open_leases, hosts):
        is_part = lease.range_id not in listed
        into = min(shares, _MAX_AT_ONCE, room + is_part)
        whole = _range_of_feed(lease.range, ranges) if is_part else lease.range
        if into < 2 or any(map(whole.overlaps, unsettled)):  # noqa: PLR2004 - parts
            continue
        found[lease.range_id] = into
        room -= into - is_part
        assert room >= 0, f"{into} parts of {lease.range_id!r} are more than there is room for"
        unsettled.append(lease.range)
    assert all(2 <= x <= _MAX_AT_ONCE for x in found.values()), f"split into {found}"  # noqa: PLR2004 - parts
    return found


def _is_settled(lease: Lease) -> bool:
    """Whether it has been read for a while, and goes on to be read by its owner."""
    kept = lease.paused is None and lease.next_owner is None and not lease.cooling
    return kept and lease.epoch > 0 and lease.owner is not None


def _too_heavy(
    leases: Sequence[Lease], hosts: Collection[HostName]
) -> Sequence[tuple[Lease, int]]:
    """Return what alone is more than a host is to have, heaviest first, and how many such
    shares it is.
    """
    loads = {x.range_id: x.known_load for x in leases if x.paused is None}
    sure = [x for x in loads.values() if x is not None]
    mean = sum(sure) / len(sure) if sure else 0.0
    total = sum(mean if x is None else x for x in loads.values())
    fair = total / len(hosts)
    assert total >= 0, f"loads of {total}: known loads are not below nothing"
    heavy = []
    for lease in leases:
        load = loads.get(lease.range_id) or 0.0
        if lease.owner in hosts and load >= MIN_BUSY and load > TOLERANCE * fair:
            heavy.append((-load, lease.range_id, lease))
    heavy.sort(key=itemgetter(0, 1))
    return [(lease, ceil(-load / fair)) for load, _, lease in heavy]


def _range_of_feed(part: FeedRange, ranges: Iterable[FeedRange]) -> FeedRange:
    """Return the smallest range of the feed that a part is of, or else the part."""
    whole: FeedRange | None = None
    for found in ranges:
        if found.covers(part) and (whole is None or whole.covers(found)):
            whole = found
    return whole or part
