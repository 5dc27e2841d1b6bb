"""A lease container that shows what was written, and not how much there is."""

from msgspec.structs import replace

from changefeed.leases.container import ListedFleet
from changefeed.leases.lease import Member
from changefeed.leases.memory import MemoryLeases
from changefeed.stores.store import WHOLE


class ShownByChanges(MemoryLeases):
    """No lease or member that was removed is shown: as Cosmos DB's change feed has it."""

    renew_each = True

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        return replace(await super().list_fleet(token, heartbeat), total=None)
