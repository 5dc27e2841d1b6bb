"""What the leases of a world are kept in, and who tells of every write to it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Literal, Protocol, TypeAlias, cast

from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.cosmos.container import CosmosLeases
from changefeed.leases.lease import KeptCheckpoint, Lease, Member
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.stored import StoredCheckpoints, StoredOwnership
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.stores.memory import MemoryStore
from changefeed.stores.store import WHOLE
from changefeed.testing.proxies import show_methods

from .network import LATENCY, Link, Replicas, Server, Way, Weather
from .probes import Probe
from .scout import Scout

StoreKind = Literal["memory", "sqlite", "cosmos"]
Records: TypeAlias = StoredOwnership | CosmosLeases
"""Leases and members as they are, in a store of ours or in the documents of Cosmos DB."""
_WRITES = ("create", "replace", "acquire", "checkpoint", "write")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the stores of a world know of it. Processes are named by their ids.

    ``created`` is called for each new lease, ``called`` of each call; the rest is as a ``Way``
    has it.
    """

    weather: Weather
    random: Random
    checker: Scout
    created: Callable[[str, FeedRange], None]
    is_down: Callable[[str], bool]
    called: Callable[[str, str], None]
    latency: float = LATENCY
    stale_reads: Callable[[], float] = lambda: 0.0
    lags: Callable[[str], bool] = lambda _: False
    comes_late: Callable[[str], float | None] = lambda _: None
    on_stale: Callable[[], None] = lambda: None
    refuses: Callable[[], bool] = lambda: False

    def link(
        self, server: Server, process_id: str, kind: type[Link] = Link, **more: Any
    ) -> Link:
        way = Way(
            down=partial(self.is_down, process_id),
            on_call=partial(self.called, process_id),
            latency=self.latency,
            stale_reads=self.stale_reads,
            lags=partial(self.lags, process_id),
            comes_late=self.comes_late,
            on_stale=self.on_stale,
            refuses=self.refuses,
            on_fate=partial(self.checker.met, process_id),
        )
        return kind(server, self.weather, self.random, way, **more)


class Stores(Protocol):
    """Where leases are kept."""

    @property
    def records(self) -> Records:
        """Leases and members as they are, whatever the weather."""
        ...

    def connect(self, process_id: str) -> LeaseContainer:
        """Return the container as one process has it."""
        ...

    def close(self) -> None: ...


class ForgetfulOwnership(StoredOwnership):
    def __init__(self) -> None:
        self._in_memory = MemoryStore()
        super().__init__(self._in_memory)

    def forget(self) -> None:
        self._in_memory._records.clear()  # versions go on


class MemoryStores:
    """A container in memory, or stores for ownership and for checkpoints."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._stores: list[object] = (
            [MemoryLeases()]
            if around.random.random() < 0.5
            else [ForgetfulOwnership(), StoredCheckpoints(MemoryStore())]
        )
        self._replicas = [Replicas() for _ in self._stores]
        aside = Random(
            around.random.getstate()[1][0]
        )  # without a draw: seeds keep their stories
        self._lists_changes = aside.random() >= 0.5

    @property
    def records(self) -> Records:
        return cast("Records", self._stores[0])

    def connect(self, process_id: str) -> LeaseContainer:
        around = self._around
        created = partial(around.created, process_id)
        links = [
            around.link(Server(self._witness(store, process_id, created), replicas), process_id)
            for store, replicas in zip(self._stores, self._replicas, strict=True)
        ]
        if len(links) == 1:
            return cast("LeaseContainer", links[0])
        ownership, checkpoints = links
        return TwoStoreLeases(
            cast("StoredOwnership", ownership), cast("StoredCheckpoints", checkpoints)
        )

    def _witness(
        self, store: object, process_id: str, created: Callable[[FeedRange], None]
    ) -> "Witness":
        checker = self._around.checker
        return Witness(store, checker, process_id, created, lists_changes=self._lists_changes)

    @property
    def checkpoints_are_apart(self) -> bool:
        return len(self._stores) > 1

    def forget_ownership(self) -> None:
        """Lose every lease and every member, and nothing of the checkpoints."""
        self._around.checker.ownership_forgotten()
        cast("ForgetfulOwnership", self._stores[0]).forget()

    async def lose_checkpoint(self, range_id: RangeId) -> KeptCheckpoint | None:
        """Take a checkpoint away; return it, if it was there."""
        checkpoints = cast("StoredCheckpoints", self._stores[1])
        lost = await checkpoints.read(range_id)
        if lost is not None:
            await checkpoints.delete(lost)
            self._around.checker.checkpoint_lost(range_id)
        return lost

    async def restore_checkpoint(self, lost: KeptCheckpoint) -> bool:
        """Put it back, unless there is another by now, or the lease is gone. Return ``False``
        if the range has ended meanwhile: its tombstone has none then.
        """
        lease = await self.records.read(lost.range_id)
        if lease is None:
            return True
        if not lease.ended:
            await cast("StoredCheckpoints", self._stores[1]).create(lost)
            self._around.checker.hit(Probe.CHECKPOINT_LOST)
        return not lease.ended

    def close(self) -> None:
        """Have nothing to close."""


class Witness:
    """A store that tells of every write, as the server does it: ``created`` of new leases.

    Unless it ``lists_changes``, each listing shows all.
    """

    def __init__(
        self,
        store: Any,
        checker: Scout,
        writer: str,
        created: Callable[[FeedRange], None],
        *,
        lists_changes: bool = True,
    ) -> None:
        self._lists_changes = lists_changes
        self._store = store
        self._checker = checker
        self._writer = writer
        self._created = created
        self._own = {
            "list_fleet": self._list_fleet,
            "put_member": self._put_member,
            "delete": self._delete,
            "remove_member": self._remove_member,
        }
        show_methods(self, store)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if (own := self._own.get(name)) is not None:
            return own
        if name not in _WRITES:
            return method

        async def watched(record: Lease | KeptCheckpoint) -> Any:
            before = await self._store.read(record.range_id)
            try:
                answer = await method(record)
            finally:
                after = await self._store.read(record.range_id)
                if after is not None and after != before:
                    self._checker.stored(before, after, self._writer)
            if name == "create" and isinstance(record, Lease):
                self._created(record.range)
            return answer

        return watched

    async def _list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        since = token if self._lists_changes else WHOLE
        found: ListedFleet = await self._store.list_fleet(since, heartbeat)
        if heartbeat is not None:
            self._checker.beat(heartbeat)
        return found if self._lists_changes else replace(found, total=None, token=WHOLE)

    async def _put_member(self, member: Member) -> Member | None:
        written: Member | None = await self._store.put_member(member)
        if written is not None:
            self._checker.beat(written)
        return written

    async def _remove_member(self, member: Member) -> None:
        await self._store.remove_member(member)
        gone = member.name not in {x.name for x in await self._store.members()}
        if gone and not self._writer.startswith(f"{member.name}/"):
            self._checker.member_deleted(member.name)

    async def _delete(self, record: Any) -> None:
        if isinstance(record, KeptCheckpoint):  # its lease has gone before
            await self._store.delete(record)
            return
        before = await self._store.read(record.range_id)
        try:
            await self._store.delete(record)
        finally:
            if before is not None and await self._store.read(record.range_id) is None:
                self._checker.deleted(before, self._writer)
