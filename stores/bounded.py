"""A store that always answers in time, or says that it did not.

It also shows whether leases can be written at all. A host that lists them and cannot write
them keeps nothing that the plan gives it, and would look alive by its heartbeats for ever.

What no store may answer is asserted here, for each that a host runs over.
"""

from collections.abc import Awaitable, Callable, Collection
from math import inf
from typing import TypeVar

from changefeed.runtime.cancellation import in_time
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.patience import Patience
from changefeed.stores.kinds import CHECKPOINTS, LEASES, OWNERSHIP
from changefeed.stores.store import WHOLE, Listed, Record, Store

T = TypeVar("T")
_MAX_REST = 10  # expirations
_OF_LEASES = (LEASES, OWNERSHIP, CHECKPOINTS)


class CallLimits:
    """How one host asks its stores. Times are in seconds, on ``clock``.

    No call takes longer than ``timeout``. One that ran out of time, or that its client gave up,
    raises ``StoreUnavailable``: a write may have happened. So does one that the server refuses,
    as long as there is ``patience`` for it. ``on_call`` gets the name of each call, for the
    metrics. ``when_failing`` is called once leases cannot be written, with the last error and
    the expiration.
    """

    def __init__(
        self,
        *,
        timeout: float,
        on_call: Callable[[str], None] = lambda _: None,
        patience: Patience | None = None,
        expiration: float = inf,
        clock: Clock = elapsed_time,
        when_failing: Callable[[StoreUnavailable, float], None] = lambda *_: None,
    ) -> None:
        self.timeout = timeout
        self.on_call = on_call
        self.patience = patience or Patience(0)
        self.expiration = expiration
        self.clock = clock
        self.when_failing = when_failing
        self._stores: list[StoreCalls] = []

    def calls(self) -> "StoreCalls":
        """Return what the calls to one more store go through."""
        self._stores.append(StoreCalls(self))
        return self._stores[-1]

    @property
    def failing(self) -> bool:
        """Whether leases cannot be written to one of the stores."""
        return any(x.failing for x in self._stores)


class StoreCalls:
    """The calls of a host to one store, and what came of those about leases."""

    def __init__(self, bounds: CallLimits) -> None:
        self._bounds = bounds
        self._since: float | None = None
        self._last = -inf

    @property
    def failing(self) -> bool:
        """Whether there were only failures for an expiration.

        After some time without another failure, more after each try, it is worth a try again:
        the host may have had nothing to write meanwhile.
        """
        expiration = self._bounds.expiration
        lasted = 0.0 if self._since is None else self._last - self._since
        longest = min(lasted, _MAX_REST * expiration)
        return lasted >= expiration and self._bounds.clock() - self._last < longest

    async def ask(
        self, name: str, call: Awaitable[T], *, of_leases: bool = False, writes: bool = False
    ) -> T:
        """Await a call within bounds. One ``of_leases`` counts where it fails, and one that
        also ``writes`` where it got through; what was refused says nothing of that.
        """
        bounds = self._bounds
        bounds.on_call(name)
        try:
            asked = in_time(
                call, bounds.timeout, who="the store", name=name, unavailable=StoreUnavailable
            )
            answer = await bounds.patience.ask(name, asked, StoreUnavailable)
        except StoreUnavailable as error:
            if of_leases:
                self._failed(error)
            raise
        if of_leases and writes and answer is not None:
            self._since = None
        return answer

    def _failed(self, error: StoreUnavailable) -> None:
        was_failing, self._last = self.failing, self._bounds.clock()
        if self._since is None:
            self._since = self._last
        if self.failing and not was_failing:
            self._bounds.when_failing(error, self._bounds.expiration)


class BoundedStore(Store):
    """Wraps a store: each of its methods is asked within bounds."""

    def __init__(self, store: Store, bounds: CallLimits) -> None:
        self._store = store
        self._calls = bounds.calls()

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        listed = await self._calls.ask("list", self._store.list(kinds, since, put))
        for x in listed.records:
            assert x.kind in kinds, f"{x.kind} {x.key!r} was listed among {kinds}"
            assert x.position is None, f"{x.kind} {x.key!r} was listed with its position"
        assert put is not None or listed.put is None, f"{listed.put} was written by nobody"
        return listed

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._calls.ask(
            "get", self._store.get(kind, key), of_leases=kind in _OF_LEASES
        )
        assert found is None or (found.kind, found.key) == (kind, key), (
            f"{found} was answered for {kind} {key!r}"
        )
        return found

    async def put(self, record: Record) -> Record | None:
        written = await self._calls.ask(
            "put", self._store.put(record), of_leases=record.kind in _OF_LEASES, writes=True
        )
        if written is not None:
            name = f"{record.kind} {record.key!r}"
            assert (written.kind, written.key) == (record.kind, record.key), (
                f"{name}: {written}"
            )
            assert written.version not in ("", record.version), f"{name}: its version stays"
            assert record.position in (None, written.position), f"{name}: at another position"
        return written

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await self._calls.ask("delete", self._store.delete(kind, key, version))
