"""Regions of an account: one writes, the others read what it wrote some seconds ago.

A region that reads has a store of its own, which follows the account's: it takes each
transaction as a whole, in their order, ``lag`` seconds after the commit. So whatever a client
sees there, of items, queries, both feeds and session tokens, was the account's state at one
moment, and the handlers of requests do not know where they read.

Only items lag. What else a transaction changes (databases, containers, ranges, throughput,
users, scripts) is in all regions at once, with all that came before it.

Which region writes can be moved. Nothing is lost by that: the next one first takes all that the
last one wrote, also where that is down.
"""

import asyncio
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cosmos_emulator.calls import Emulator
from cosmos_emulator.consistency import (
    MOST_BEHIND,
    MOST_SECONDS,
    Consistency,
    consistency_named,
)
from cosmos_emulator.errors import WRITE_FORBIDDEN, CosmosError, bad_request
from cosmos_emulator.store import Statement, Store

_OF_ITEMS: Final = frozenset({"items", "log", "unique_values", "ranges"})
_TABLE: Final = re.compile(r"(?:INSERT(?: OR REPLACE)? INTO|DELETE FROM|UPDATE) (\w+)")
_READS: Final = ("read_", "list_", "query_")
_MOST_LAG: Final = 600.0  # seconds: what is not taken yet is kept in memory
_PACE: Final = 0.05  # seconds
_AT_ONCE: Final = 200  # transactions, taken within a few milliseconds


class Replica:
    """The account as a region sees it that follows: a store in memory."""

    def __init__(self, account: Emulator, now: Callable[[], float]) -> None:
        self._store = account.store.in_memory()
        self._now = now
        self._ahead: deque[tuple[float, Sequence[Statement]]] = deque()
        self.account = account.over(self._store)
        account.store.follow(self)

    @property
    def transactions_behind(self) -> int:
        return len(self._ahead)

    def begin(self, leader: Store) -> None:
        self._ahead.clear()
        leader.copy_to(self._store)

    def take(self, committed: Sequence[Statement]) -> None:
        self._ahead.append((self._now(), committed))
        if not all(_is_of_items(x) for x, _ in committed):
            self.reach(math.inf)
        elif len(self._ahead) > MOST_BEHIND:
            self.reach(math.inf, most=1)

    def reach(self, moment: float, most: int | None = None) -> None:
        """Take over what was committed up to a moment, or only the first of it."""
        left = len(self._ahead) if most is None else most
        if not (left and self._ahead and self._ahead[0][0] <= moment):
            return
        with self._store.transaction():
            while left and self._ahead and self._ahead[0][0] <= moment:
                for statement, values in self._ahead.popleft()[1]:
                    self._store.run(statement, values)
                left -= 1


@lru_cache
def _is_of_items(statement: str) -> bool:
    found = _TABLE.match(statement)
    assert found is not None, statement
    return found[1] in _OF_ITEMS


@dataclass(slots=True, kw_only=True)
class Region:
    """A region as it is now. Without a replica it is the one that writes."""

    name: str
    lag: float
    replica: Replica | None
    port: int = 0  # where it alone answers; 0 before that is known
    is_down: bool = False

    @property
    def writes(self) -> bool:
        return self.replica is None


class Regions:
    """All regions, in the order of the settings; the first one writes, to begin with.

    ``switch`` opens a port, or closes it.
    """

    def __init__(self, account: Emulator, now: Callable[[], float]) -> None:
        """Raise ``ValueError`` for names, lags or a consistency that cannot be."""
        settings = account.settings
        self.consistency = consistency_named(settings.consistency)
        self.switch: Callable[[int, bool], Awaitable[None]] | None = None
        self._account = account
        self._now = now
        _check_names([x.name for x in settings.regions])
        self._regions = [
            Region(name=x.name, lag=self._checked(x.lag), replica=None)
            for x in settings.regions
        ]
        for region in self._regions[1:]:
            region.replica = Replica(account, now)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def writer(self) -> Region:
        return next(x for x in self._regions if x.writes)

    def at(self, port: int) -> Region:
        """Return the region of a port; of the account's own, the one that writes."""
        return next((x for x in self._regions if x.port == port), self.writer)

    def account_in(self, region: Region, operation: str, level: Consistency) -> Emulator:
        """Return the account as a request sees it in a region; 403/3 for a write elsewhere."""
        if region.replica is None:
            return self._account
        if not (operation.startswith(_READS) or operation == "change_feed"):
            raise CosmosError(
                403,
                f"The requested operation cannot be performed at this region: {region.name} "
                f"reads, and {self.writer.name} writes. Read the account again.",
                WRITE_FORBIDDEN,
            )
        is_strong = level is Consistency.STRONG
        region.replica.reach(math.inf if is_strong else self._now() - region.lag)
        return region.replica.account

    def set_lag(self, region: Region, seconds: float) -> None:
        """Let a region be more or less behind. What it has taken stays."""
        try:
            region.lag = self._checked(seconds)
        except ValueError as error:
            raise bad_request(str(error)) from error

    def let_write(self, region: Region) -> None:
        """Move the writes to a region; 409 if it is down."""
        if region.is_down:
            raise CosmosError(409, f"{region.name} is down and cannot write: start it first.")
        if region.replica is not None:
            region.replica.reach(math.inf)
            self.writer.replica, region.replica = region.replica, None

    async def set_down(self, region: Region, *, is_down: bool) -> None:
        """Let a region take no connections, or take them again."""
        if self.switch is None or len(self) == 1:
            raise bad_request("The only region cannot go down: stop the emulator.")
        if region.is_down == is_down:
            return
        region.is_down = True
        try:
            await self.switch(region.port, not is_down)
        except OSError as error:
            raise CosmosError(
                409, f"{region.name} stays down: port {region.port} is taken ({error})."
            ) from error
        region.is_down = is_down

    async def keep_up(self) -> None:
        """Take what is due, a little at a time, so that no request has to take much."""
        while True:
            await asyncio.sleep(_PACE)
            for region in self._regions:
                if region.replica is not None:
                    region.replica.reach(self._now() - region.lag, most=_AT_ONCE)

    def _checked(self, lag: float) -> float:
        is_bounded = self.consistency is Consistency.BOUNDED
        most = MOST_SECONDS if is_bounded else _MOST_LAG
        if not 0 <= lag <= most:
            raise ValueError(
                f"The lag of a region is 0 to {most:g} seconds with the consistency "
                f"{self.consistency}, not {lag:g}."
            )
        return lag


def _check_names(names: Sequence[str]) -> None:
    plain = [x.replace(" ", "").lower() for x in names]  # as clients compare them
    if not names or len({*plain}) < len(plain) or not all(x.isalnum() for x in plain):
        raise ValueError(
            f"Regions have different names, of letters, digits and spaces: {', '.join(names)}."
        )
