"""The newest bodies of a feed, for who wants to see what they are like.

What is there is planned as for a batch, and of each range the end is read: so many
transactions, and more where they have not so many bodies, as in Cosmos DB, where items that
were written again have left gaps. The ranges of now come first, before those that ended.
A feed that has modes is read in its first, which has a beginning.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

from changefeed.pipeline.source.addresses import open_access, with_beginning
from changefeed.pipeline.source.advice import query_advice
from changefeed.pipeline.source.planning import (
    fair_shares,
    first_offset,
    slices_to,
    target_at,
)
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.record_batches import Envelope

_WIDER: Final = 4
_BODIES: Final = Envelope(columns=("operation", "body"))


def newest_bodies(feed: str, count: int) -> Sequence[str]:
    """Return the bodies of the newest changes of a feed, so many at the most: its ranges share
    them by how long they are. Deletes have none. Raise what opening the feed raises.
    """
    found: list[str] = []
    with query_advice(), closing(open_access(with_beginning(feed))) as access:
        slices = _everything(access)
        for generation in sorted({x.generation for x in slices}, reverse=True):
            if len(found) >= count:
                break
            of = {x.range_id: x for x in slices if x.generation == generation}
            sizes = {x: access.positions.distance(y.start, y.end) for x, y in of.items()}
            shares = fair_shares(sizes, count - len(found))
            for name, share in shares.items():
                found += _ending(access, of[name], share)
    return found


def _everything(access: Access) -> Sequence[Slice]:
    """Return what there is, each range in one slice."""
    within, start = target_at(access, "now"), first_offset(access, "beginning")
    return [*slices_to(access, start, within)]


def _ending(access: Access, slice_: Slice, count: int) -> Sequence[str]:
    """Return the last so many bodies of a slice; all, if it has fewer."""
    size, back = access.positions.distance(slice_.start, slice_.end), count
    while True:
        whole = back >= size
        start = slice_.start if whole else access.positions.before(slice_.end, back)
        last = deque(_bodies(access, replace(slice_, start=start)), maxlen=count)
        if whole or len(last) == count:
            return [*last]
        back *= _WIDER


def _bodies(access: Access, slice_: Slice) -> Iterator[str]:
    for range_id, block in access.read(slice_):
        rows = _BODIES.batch(range_id, block, slice_.generation)
        operations, bodies = (x.to_pylist() for x in rows.columns)
        for operation, body in zip(operations, bodies, strict=True):
            if operation != "delete" and body:
                yield body
