"""Physical partitions: ranges of the hash space, each with its own sequence of LSNs.

A range is cut in two or joined with its neighbour; the old ones are gone, but remembered.
Children of a split go on counting where their parent stood. A merged range has a new
version, and goes on behind the highest LSN of its parents: items keep the LSN they were
written with, so that a continuation of either parent still says what its reader has seen
(clients bring it along, with the bounds of the parent). So LSNs never repeat in a range,
but they jump at a merge, and two items of different parents may have the same one.

While a cut or a join is under way, the ranges in it answer 410/1007 to clients that name them;
afterwards 410/1002. Who names a partition key waits, as at a real gateway.
"""

import asyncio
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

import msgspec

from cosmos_emulator.errors import RANGE_GONE, SPLIT_RUNNING, CosmosError, bad_request
from cosmos_emulator.hashing import HIGHEST, LOWEST, Hashing
from cosmos_emulator.store import Row, Store

_COLUMNS: Final = (
    "SELECT pid, container, id, low, high, parents, version, lsn, items, bytes, born, gone "
    "FROM ranges "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalRange:
    """One physical partition. ``born`` and ``gone`` count the changes of the topology."""

    pid: int  # names it among the ranges of all containers
    container: int
    id: str
    low: str
    high: str
    parents: tuple[str, ...]  # all ancestors, the oldest first
    version: int
    lsn: int
    items: int
    bytes: int
    born: int
    gone: int | None

    @property
    def session_token(self) -> str:
        return f"{self.id}:{self.version}#{self.lsn}"


def _range(row: Row) -> PhysicalRange:
    pid, container, name, low, high, parents, version, lsn, items, size, born, gone = row
    return PhysicalRange(
        pid=pid,
        container=container,
        id=name,
        low=low,
        high=high,
        parents=tuple(msgspec.json.decode(parents)),
        version=version,
        lsn=lsn,
        items=items,
        bytes=size,
        born=born,
        gone=gone,
    )


class Ranges:
    """The ranges of every container, as they are and as they were."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changing: set[int] = set()  # lost in a crash, as is the change itself
        self._settled = asyncio.Event()

    def over(self, store: Store) -> "Ranges":
        """Return the ranges as another store has them; they change at the same time."""
        other = copy(self)
        other._store = store  # noqa: SLF001 - its own kind
        return other

    def create(self, container: int, parts: int, hashing: Hashing) -> None:
        """Cut the space of a new container into equal parts."""
        bounds = [LOWEST, *hashing.even_cuts(parts), HIGHEST]
        for i in range(parts):
            self._insert(container, low=bounds[i], high=bounds[i + 1])

    def current(self, container: int) -> list[PhysicalRange]:
        """Return the ranges that can be read, in the order of their bounds."""
        found = self._store.rows(
            _COLUMNS + "WHERE container = ? AND gone IS NULL ORDER BY low", (container,)
        )
        return [_range(x) for x in found]

    def everything(self, container: int) -> list[PhysicalRange]:
        found = self._store.rows(_COLUMNS + "WHERE container = ? ORDER BY pid", (container,))
        return [_range(x) for x in found]

    def topology(self, container: int) -> int:
        """Return how often ranges came or went: the etag of the list of ranges."""
        row = self._store.row("SELECT topology FROM containers WHERE number = ?", (container,))
        return int(row[0]) if row else 0

    def holding(self, container: int, epk: str) -> PhysicalRange:
        """Return the range of a hash; 410/1007 while it is being cut or joined."""
        row = self._store.row(
            _COLUMNS + "WHERE container = ? AND gone IS NULL AND low <= ? "
            "ORDER BY low DESC LIMIT 1",
            (container, epk),
        )
        assert row is not None, "the ranges of a container cover every hash"
        return self._unless_changing(_range(row))

    def named(self, container: int, name: str) -> PhysicalRange:
        """Return a range by its id; 410/1002 if it is gone, or never was."""
        row = self._store.row(_COLUMNS + "WHERE container = ? AND id = ?", (container, name))
        if row is None or row[-1] is not None:
            raise CosmosError(
                410,
                f"The partition key range {name!r} is gone: it was split or merged. Read the "
                f"partition key ranges again.",
                RANGE_GONE,
            )
        return self._unless_changing(_range(row))

    def advance(self, pid: int, *, items: int, size: int) -> int:
        """Begin a transaction's next LSN in a range, and count what it adds or removes."""
        row = self._store.row(
            "UPDATE ranges SET lsn = lsn + 1, items = items + ?, bytes = bytes + ? "
            "WHERE pid = ? RETURNING lsn",
            (items, size, pid),
        )
        assert row is not None
        return int(row[0])

    def count(self, pid: int, *, items: int, size: int) -> None:
        """Count what a transaction adds or removes beyond its first item."""
        self._store.run(
            "UPDATE ranges SET items = items + ?, bytes = bytes + ? WHERE pid = ?",
            (items, size, pid),
        )

    async def split(
        self,
        container: int,
        name: str,
        hashing: Hashing,
        *,
        at: str | None = None,
        seconds: float = 0.0,
    ) -> list[PhysicalRange]:
        """Cut a range in two, in the middle of its hashes or ``at`` one of them."""
        parent = self.named(container, name)
        cut = hashing.middle(parent.low, parent.high) if at is None else at.upper()
        if not parent.low < cut < parent.high:
            raise bad_request(
                f"The range {name!r} holds [{parent.low}, {parent.high}) and cannot be cut at "
                f"{cut!r}: name a hash strictly inside."
            )
        await self._closed_for([parent], seconds)
        return self.split_now(parent.pid, cut)

    def split_now(self, pid: int, cut: str) -> list[PhysicalRange]:
        with self._store.transaction():
            row = self._store.row(_COLUMNS + "WHERE pid = ?", (pid,))
            if row is None:
                raise CosmosError(404, "The container of this range was deleted meanwhile.")
            parent = _range(row)
            low = self._inherit([parent], low=parent.low, high=cut, version=parent.version)
            high = self._inherit([parent], low=cut, high=parent.high, version=parent.version)
        return [x for x in self.current(parent.container) if x.pid in {low, high}]

    def grow(self, container: int, parts: int, hashing: Hashing) -> None:
        """Cut the widest ranges until there are as many as a throughput needs."""
        while len(current := self.current(container)) < parts:
            widest = max(current, key=lambda x: hashing.width(x.low, x.high))
            self.split_now(widest.pid, hashing.middle(widest.low, widest.high))

    async def merge(
        self, container: int, names: Sequence[str], *, seconds: float = 0.0
    ) -> PhysicalRange:
        """Join neighbours into one range of a new version."""
        parents = sorted((self.named(container, x) for x in names), key=lambda x: x.low)
        joined = [x.high for x in parents[:-1]] == [x.low for x in parents[1:]]
        if len({x.pid for x in parents}) < 2 or not joined:  # noqa: PLR2004 - a pair
            raise bad_request(f"Only two or more neighbouring ranges can be merged: {names}.")
        await self._closed_for(parents, seconds)
        with self._store.transaction():
            version = max(x.version for x in parents) + 1
            low, high = parents[0].low, parents[-1].high
            # read again: items may have expired meanwhile, and moved the LSNs
            now = [x for x in self.current(container) if x.id in names]
            if not now:
                raise CosmosError(404, "The container of these ranges was deleted meanwhile.")
            pid = self._inherit(now, low=low, high=high, version=version)
        return next(x for x in self.current(container) if x.pid == pid)

    def median(self, pid: int) -> str | None:
        """Return the hash that leaves half of a range's items on either side, if any does."""
        row = self._store.row(
            "SELECT epk FROM items WHERE pid = ? ORDER BY epk "
            "LIMIT 1 OFFSET (SELECT count(*) / 2 FROM items WHERE pid = ?)",
            (pid, pid),
        )
        lowest = self._store.row("SELECT min(epk) FROM items WHERE pid = ?", (pid,))
        return row[0] if row and lowest and row[0] != lowest[0] else None

    async def _closed_for(self, ranges: Sequence[PhysicalRange], seconds: float) -> None:
        pids = {x.pid for x in ranges}
        self._changing |= pids
        self._settled.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._changing -= pids
            if not self._changing:
                self._settled.set()

    def check_settled(self) -> None:
        """Raise 409 while a range is being cut or joined."""
        if self._changing:
            raise CosmosError(
                409,
                "A range is being split or merged. Wait until that has ended, and ask again.",
            )

    async def settled(self) -> None:
        """Wait until no range is being cut or joined."""
        if self._changing:
            await self._settled.wait()

    def _unless_changing(self, found: PhysicalRange) -> PhysicalRange:
        if found.pid in self._changing:
            raise CosmosError(
                410,
                f"The partition key range {found.id!r} is being split or merged. Ask again "
                f"in a moment.",
                SPLIT_RUNNING,
            )
        return found

    def _inherit(
        self, parents: Sequence[PhysicalRange], *, low: str, high: str, version: int
    ) -> int:
        """Make a range that takes over what its parents have between two hashes."""
        names = [y for x in parents for y in (*x.parents, x.id)]
        pid = self._insert(
            parents[0].container,
            low=low,
            high=high,
            parents=list(dict.fromkeys(names)),
            version=version,
            lsn=max(x.lsn for x in parents),
        )
        for parent in parents:
            bounds = (pid, parent.pid, low, high)
            for table in ("items", "log"):
                self._store.run(
                    f"UPDATE {table} SET pid = ? WHERE pid = ? AND epk >= ? AND epk < ?",  # noqa: S608 - two names of ours
                    bounds,
                )
            self._store.run(
                "UPDATE ranges SET gone = ? WHERE pid = ?",
                (self.topology(parent.container), parent.pid),
            )
        self._store.run(
            "UPDATE ranges SET (items, bytes) = (SELECT count(*), "
            "ifnull(sum(length(body)), 0) FROM items WHERE items.pid = ranges.pid) "
            "WHERE pid = ?",
            (pid,),
        )
        return pid

    def _insert(
        self,
        container: int,
        *,
        low: str,
        high: str,
        parents: Sequence[str] = (),
        version: int = 0,
        lsn: int = 0,
    ) -> int:
        row = self._store.row(
            "UPDATE containers SET topology = topology + 1, next_range = next_range + 1 "
            "WHERE number = ? RETURNING topology, next_range - 1",
            (container,),
        )
        assert row is not None
        made = self._store.row(
            "INSERT INTO ranges (container, id, low, high, parents, version, lsn, items, "
            "bytes, born) VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, ?) RETURNING pid",
            (
                container,
                str(row[1]),
                low,
                high,
                msgspec.json.encode(list(parents)).decode(),
                version,
                lsn,
                row[0],
            ),
        )
        assert made is not None
        return int(made[0])
