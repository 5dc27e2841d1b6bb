"""A store that always answers in time, or says that it did not.

It also shows whether leases can be written at all. A host that lists them and cannot write
them keeps nothing that the plan gives it, and would look alive by its heartbeats for ever.

What no store may answer is asserted here, for each that a host runs over.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
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


@dataclass(slots=True)
class _Failures:
    """When calls began to fail, and when one last did."""

    since: float
    last: float


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
        self.expiration = expiration
        self._on_call = on_call
        self._patience = patience or Patience(0)
        self._clock = clock
        self._when_failing = when_failing
        self._failures = dict[str, _Failures]()

    @property
    def failing(self) -> bool:
        """Whether leases, or a part of them, cannot be written: there were only failures for an
        expiration.

        After some time without another failure, more after each try, it is worth a try again:
        the host may have had nothing to write meanwhile.
        """
        return any(map(self._are_lasting, self._failures.values()))

    def _are_lasting(self, failures: _Failures) -> bool:
        lasted = failures.last - failures.since
        longest = min(lasted, _MAX_REST * self.expiration)
        return lasted >= self.expiration and self._clock() - failures.last < longest

    async def ask(
        self, name: str, call: Awaitable[T], *, kind: str = "", writes: bool = False
    ) -> T:
        """Await a call. One about a kind of leases counts where it fails, and one that also
        ``writes`` where it got through; what was refused says nothing of that.
        """
        self._on_call(name)
        try:
            asked = in_time(
                call, self.timeout, who="the store", name=name, unavailable=StoreUnavailable
            )
            answer = await self._patience.ask(name, asked, StoreUnavailable)
        except StoreUnavailable as error:
            if kind in _OF_LEASES:
                self._failed(kind, error)
            raise
        if writes and answer is not None:
            self._failures.pop(kind, None)
        return answer

    def _failed(self, kind: str, error: StoreUnavailable) -> None:
        was_failing, now = self.failing, self._clock()
        self._failures.setdefault(kind, _Failures(since=now, last=now)).last = now
        if self.failing and not was_failing:
            self._when_failing(error, self.expiration)


class BoundedStore(Store):
    """Wraps a store: each of its methods is asked within bounds."""

    def __init__(self, store: Store, bounds: CallLimits) -> None:
        self._store = store
        self._bounds = bounds

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        listed = await self._bounds.ask("list", self._store.list(kinds, since, put))
        for x in listed.records:
            assert x.kind in kinds, f"{x.kind} {x.key!r} was listed among {kinds}"
            assert x.position is None, f"{x.kind} {x.key!r} was listed with its position"
        assert put is not None or listed.put is None, f"{listed.put} was written by nobody"
        return listed

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._bounds.ask("get", self._store.get(kind, key), kind=kind)
        assert found is None or (found.kind, found.key) == (kind, key), (
            f"{found} was answered for {kind} {key!r}"
        )
        return found

    async def put(self, record: Record) -> Record | None:
        written = await self._bounds.ask(
            "put", self._store.put(record), kind=record.kind, writes=True
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
        return await self._bounds.ask("delete", self._store.delete(kind, key, version))
