"""Ownership in blobs. Every host lists it every few seconds, and each request is paid for."""

from changefeed.leases.blob.tables import BlobTable
from changefeed.leases.conditional import ConditionalOwnership, FeedText
from changefeed.leases.lease import Lease, Member
from changefeed.leases.listing import WHOLE, ListedChanges


class BlobOwnership(ConditionalOwnership):
    """An ``OwnershipStore`` that is listed with its members in one request.

    The names of all their blobs have one ``beginning``. Blob Storage cannot say in time what
    has changed: each answer has everything.
    """

    def __init__(
        self,
        leases: BlobTable[Lease],
        members: BlobTable[Member],
        feed: FeedText,
        *,
        beginning: str,
    ) -> None:
        super().__init__(leases, members, feed)
        self._tables = leases, members
        self._beginning = beginning
        assert all(x.folder.startswith(beginning) for x in self._tables), (
            f"one listing of {beginning!r} shows both"
        )

    async def changes_since(self, token: str) -> ListedChanges:  # noqa: ARG002 - of the protocol
        leases, members = self._tables
        blobs = await leases.blobs(self._beginning)
        return ListedChanges(
            leases=await leases.read(blobs),
            total=None,
            token=WHOLE,
            members=await members.read(blobs),
        )
