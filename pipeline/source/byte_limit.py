"""How many changes fit into a batch of so many bytes.

A feed does not say how large what lies ahead is, and Spark wants the end of a batch before
anything is read, and logs it. So the planner measures some changes of each range, the first of
the batch and then the last of it, and takes those between them for as large. The next batch
begins where this one ends, and measures anew: sizes that drift are followed.

Limits: changes between the measured ones may be larger, and then so is the batch. What is
measured is read twice. A batch has at least one transaction.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.planning import fair_shares
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.record_batches import Envelope

_AT_ONCE: Final = 16
Shares: TypeAlias = Mapping[RangeId, int]
"""How many transactions of each range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteLimit:
    """``most`` bytes, as Spark gets the columns of the ``envelope``: in Arrow.

    So many transactions are ``measured`` at either end of what is read of a range.
    """

    most: int
    envelope: Envelope
    measured: int = 50

    def fitted(
        self,
        access: Access,
        shares: Shares,
        planned: Callable[[Shares], Mapping[RangeId, Slice]],
        turn: int,
    ) -> Shares:
        """Return what of the shares fits. ``planned`` returns what is read of such shares."""
        heads = planned({name: min(x, self.measured) for name, x in shares.items()})
        first = self._sizes(access, heads)
        shares = self._cut(shares, first, turn)
        tails = {
            name: replace(
                x,
                start=access.positions.beside(
                    access.positions.before(x.end, self.measured), x.end
                ),
            )
            for name, x in planned(shares).items()
            if shares[name] > self.measured
        }
        last = {**first, **self._sizes(access, tails)}
        return self._cut(
            shares, {name: (first[name] + last[name]) / 2 for name in shares}, turn
        )

    def _cut(self, shares: Shares, sizes: Mapping[RangeId, float], turn: int) -> Shares:
        expected = sum(sizes[name] * share for name, share in shares.items())
        if expected <= self.most:
            return shares
        fitting = int(sum(shares.values()) * self.most / expected)
        return fair_shares(shares, max(1, fitting), turn)

    def _sizes(self, access: Access, ends: Mapping[RangeId, Slice]) -> dict[RangeId, float]:
        """Return the bytes of a transaction, from some of each range."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(
                zip(ends, pool.map(partial(self._size, access), ends.values()), strict=True)
            )

    def _size(self, access: Access, end: Slice) -> float:
        blocks = access.read(end)
        size = sum(int(self.envelope.batch(x, block, 0).nbytes) for x, block in blocks)
        return size / max(1, min(self.measured, access.positions.distance(end.start, end.end)))
