"""A lease container that shows members by what has changed, as Cosmos DB's change feed does."""

from dataclasses import replace

from changefeed.leases.listing import ListedChanges, ListedFleet
from changefeed.leases.memory import MemoryLeases, MemoryTable


class ShownByChanges(MemoryLeases):
    """No lease or member that was removed is shown, nor how many there are."""

    async def list_fleet(self, *_: object) -> ListedFleet | None:
        return None

    async def changes_since(self, token: str) -> ListedChanges | None:
        of_leases, _, of_members = token.partition(" ")
        changes = await super().changes_since(of_leases)
        assert changes is not None
        assert isinstance(self._members, MemoryTable)
        members = await self._members.changes_since(of_members)
        return replace(
            changes,
            total=None,
            token=f"{changes.token} {members.token}",
            members=members.records,
        )
