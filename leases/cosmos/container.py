"""Leases in a Cosmos DB container, in the documents of the .NET change feed processor.

Every write is a partial update under the etag of the copy it was made from: exactly one
writer wins. A renewal does not carry the position, and a checkpoint carries nothing
else. The version of a lease is that etag, with what a write must know of the document.

The client sends a write again when its answer was lost. So on a conflict the document is
read: if it names this very attempt, the write had got through. If another host has
written after it, the conflict is raised, and the caller reads the lease again. (One of
another kind carries the name of our attempt along, but not its owner and its time.)

Where hosts of this kind alone share the leases, a listing asks the container's change feed for
what was written since (``list_fleet``), leases and members. It shows no deletes; ours are of
leases that are not needed any more and of hosts that have said before that they stop, and seen
within a minute, or when a write finds the record gone. A processor of another kind deletes the
lease of a range that was split while it goes on in others, so beside one all are listed, as
they are where it has begun a lease without a position.

Limits: accounts that take writes in several regions resolve conflicts afterwards, and
two hosts in two regions would both win. All hosts must write in the same region.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn, TypeVar

from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import ListedFleet
from changefeed.leases.cosmos import documents
from changefeed.leases.cosmos.changes import LeaseChanges
from changefeed.leases.cosmos.creation_lock import Markers
from changefeed.leases.cosmos.documents import Operation, VersionToken
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.lease import Lease, Member, require_position
from changefeed.leases.stored import StoredMembers
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.logs import get_logger
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document, Items
from changefeed.stores.cosmos.store import CosmosStore
from changefeed.stores.kinds import HOSTS
from changefeed.stores.store import WHOLE, CallLimits

_log = get_logger()

T = TypeVar("T")
_ATTEMPTS = 5  # each lost to a write in between


class CosmosLeases(StoredMembers):
    """Ownership and checkpoint in one document: a ``LeaseContainer``.

    With ``only_look``, leases of a Java processor are returned as well, and nothing written.
    """

    renew_each = True  # the .NET processor may come, and would take what stands still

    def __init__(
        self,
        items: Items,
        names: DocumentIds,
        *,
        mode: str = documents.INCREMENTAL,
        only_look: bool = False,
        changes: LeaseChanges | None = None,
        bounds: CallLimits | None = None,
    ) -> None:
        self._records = CosmosStore(items, names)
        super().__init__(self._records, where=names.prefix)
        self._items = items
        self._changes = changes
        self._bounds = bounds
        self._shared = False  # with processors of another kind, when last listed
        self._names = names
        self._mode = mode
        self._markers = Markers(items, names)
        self._only_look = only_look
        self._forgetful: set[str] = set()

    def bounded(self, bounds: CallLimits) -> "CosmosLeases":
        return CosmosLeases(
            self._items.bounded(bounds),
            self._names,
            mode=self._mode,
            only_look=self._only_look,
            changes=self._changes,
            bounds=bounds,
        )

    async def list(self) -> Sequence[Lease]:
        found = await self._items.query(documents.LISTED, begin=self._names.leases)
        self._warn_of_forgetful_neighbours(found)
        self._shared = not all(map(_is_ours_alone, found))
        leases = [documents.lease_in(self._ours(x)) for x in found if documents.started(x)]
        await self._finish_creating(listed=bool(leases))
        return leases

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        written = None if heartbeat is None else await self.put_member(heartbeat)
        found = await self._written_since(token) if token else None
        return replace(found or await self._all(), heartbeat=written)

    async def _all(self) -> ListedFleet:
        # Before the listing: what comes twice is no harm.
        begin = None if self._changes is None else await self._asked(self._changes.now())
        leases, members = await gather_or_cancel(self.list(), self.members())
        token = WHOLE if self._shared or begin is None else begin
        return ListedFleet(leases=leases, members=members, total=None, token=token)

    async def _written_since(self, token: str) -> ListedFleet | None:
        """Ask the change feed; ``None`` where a listing has to say it."""
        changes = self._changes
        written = None if changes is None else await self._asked(changes.since(token))
        if written is None:
            return None
        documents_since, next_token = written
        begin_of_id = self._names.leases
        found = [x for x in documents_since if str(x["id"]).startswith(begin_of_id)]
        if not all(map(_is_ours_alone, found)):
            return None
        leases = [documents.lease_in(self._ours(x)).without_position() for x in found]
        members = self._members(self._records.among(HOSTS, documents_since))
        await self._finish_creating(listed=bool(leases))
        return ListedFleet(leases=leases, members=members, total=None, token=next_token)

    async def _asked(self, of_changes: Awaitable[T]) -> T:
        bounds = self._bounds
        return await (of_changes if bounds is None else bounds.ask("changes", of_changes))

    async def _finish_creating(self, *, listed: bool) -> None:
        """Let others in: a host that lists has created what was missing at its last look."""
        if not self._only_look:
            await self._markers.finish(listed=listed)

    async def read(self, range_id: RangeId) -> Lease | None:
        found = await self._items.read(self._names.lease(range_id))
        if found is None or not documents.started(found):
            return None
        return documents.lease_in(self._ours(found))

    async def create(self, lease: Lease) -> Lease:
        require_position(lease)
        await self._markers.begin()
        for _ in range(_ATTEMPTS):
            document = documents.new_document(self._names, self._mode, lease, unique_name())
            made = await self._items.create(self._items.keyed(document))
            if made is not None:
                return documents.lease_in(made)
            stored = await self._given_a_position(lease)
            if stored is not None:
                return stored
        raise StoreUnavailable(f"lease {lease.range_id!r} comes and goes")

    async def replace(self, lease: Lease) -> Lease:
        def patch(seen: VersionToken, attempt: str) -> Awaitable[str | None]:
            return self._items.patch(
                self._name(lease), documents.changes(lease, seen, attempt), seen.etag
            )

        etag = await self._written(lease, patch, of=lambda x: str(x["_etag"]))
        before = documents.seen_in(lease.version)
        behind = lease.checkpoint is not None and lease.checkpoint.high is not None
        seen = VersionToken(
            etag=etag,
            epoch=lease.epoch,
            low=lease.range.low,
            high=lease.range.high,
            has_properties=True,
            has_behind=behind or (before is not None and before.has_behind),
        )
        return replace(lease, version=documents.version_of(seen))

    async def acquire(self, lease: Lease) -> Lease:
        bare = lease.without_position()
        return await self._written_whole(lease, lambda x, y: documents.changes(bare, x, y))

    async def checkpoint(self, lease: Lease) -> Lease:
        require_position(lease)
        seen = documents.seen_in(lease.version)
        if seen is not None and seen.epoch != lease.epoch:
            await self._refuse(
                lease, f"a checkpoint of epoch {lease.epoch}, but it is in epoch {seen.epoch}"
            )
        lease = replace(lease, checkpoint_epoch=lease.epoch)
        return await self._written_whole(
            lease, lambda x, y: documents.checkpoint_changes(lease, x, y)
        )

    async def delete(self, lease: Lease) -> None:
        seen = documents.seen_in(lease.version)
        if seen is None:
            await self._refuse(lease)
        if not await self._items.delete(self._name(lease), seen.etag):
            await self._refuse(lease)

    async def _written_whole(
        self, lease: Lease, changes: Callable[[VersionToken, str], Sequence[Operation]]
    ) -> Lease:
        def patch(seen: VersionToken, attempt: str) -> Awaitable[Document | None]:
            return self._items.patch_whole(self._name(lease), changes(seen, attempt), seen.etag)

        return documents.lease_in(await self._written(lease, patch, of=lambda x: x))

    async def _written(
        self,
        lease: Lease,
        write: Callable[[VersionToken, str], Awaitable[T | None]],
        *,
        of: Callable[[Document], T],
    ) -> T:
        """Write once; ``of`` makes the answer from a document whose answer was lost."""
        seen, attempt = documents.seen_in(lease.version), unique_name()
        if seen is None:
            await self._refuse(lease)
        written = await write(seen, attempt)
        if written is not None:
            return written
        found = await self._items.read(self._name(lease))
        if found is not None and _was_written_last(found, attempt):
            return of(found)
        raise _conflict(lease, found)

    async def _refuse(self, lease: Lease, reason: str = "") -> NoReturn:
        raise _conflict(lease, await self._items.read(self._name(lease)), reason)

    async def _given_a_position(self, lease: Lease) -> Lease | None:
        """Return the lease that is there; give it our position if it has none.

        ``None`` if it was deleted, or written by others, in the meantime.
        """
        found = await self._items.read(self._name(lease))
        if found is None:
            return None
        if documents.started(found):
            return documents.lease_in(self._ours(found))
        operations = documents.first_position(require_position(lease))
        written = await self._items.patch_whole(self._name(lease), operations, found["_etag"])
        return None if written is None else documents.lease_in(self._ours(written))

    def _warn_of_forgetful_neighbours(self, found: Sequence[Document]) -> None:
        """Warn once of each owner whose writes lose what is ours in a lease."""
        owners = {str(x["Owner"]) for x in found if documents.forgets_our_part(x)}
        for owner in sorted(owners - self._forgetful):
            _log.warning(
                "store.warning",
                what="leases are rewritten by others",
                owner=owner,
                advice="it keeps no properties: epochs begin again, pauses and handoffs are "
                "lost. Let one kind of processor run, and import the leases of the other",
            )
        self._forgetful |= owners

    def _ours(self, document: Document) -> Document:
        documents.check_mode(document, self._mode)
        if not self._only_look:
            documents.check_not_java(document)
        return document

    def _name(self, lease: Lease) -> str:
        return self._names.lease(lease.range_id)


def _is_ours_alone(document: Document) -> bool:
    return documents.started(document) and not documents.is_foreign(document)


def _was_written_last(document: Document, attempt: str) -> bool:
    """Whether it is as this attempt has left it: other processors carry along its name."""
    return documents.last_attempt(document) == attempt and not documents.is_foreign(document)


def _conflict(lease: Lease, found: Document | None, reason: str = "") -> LeaseConflict:
    if found is None:
        return LeaseConflict(lease, None)
    return LeaseConflict(lease, documents.lease_in(found).without_position(), reason)
