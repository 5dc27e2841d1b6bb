"""How one broker shows that it lives, and learns who else does."""

import asyncio

from msgspec.structs import replace

from changefeed.log.brokers.catalog_watch import CatalogWatch
from changefeed.log.brokers.era_writer import EraWriter
from changefeed.log.brokers.members import Heartbeat, Members, name_taken
from changefeed.log.catalog.catalog import Member
from changefeed.log.catalog.catalog_store import CatalogStore
from changefeed.log.catalog.transitions import with_member


class Presence:
    """Each method may be repeated, and called by many tasks."""

    def __init__(
        self, members: Members, catalogs: CatalogStore, writer: EraWriter, watch: CatalogWatch
    ) -> None:
        self._members = members
        self._catalogs = catalogs
        self._writer = writer
        self._watch = watch
        self._was_named = False

    @property
    def is_calm(self) -> bool:
        """Whether all brokers hear each other, as far as this one knows, and it can write.

        Else it shows in the store that it lives, and looks often for a newer catalog.
        """
        row = self._writer.row
        return self._members.hears_all() and not (row is not None and row.is_held_up)

    def heartbeat(self, *, leaving: bool = False) -> Heartbeat:
        """Return what this broker says of itself now. One that is ``leaving`` stays so."""
        row, members = self._writer.row, self._members
        if self.is_calm:
            members.reached_store(self._catalogs.confirmed_at)
        newest = self._catalogs.newest.number
        assert newest >= members.heartbeat.catalog, (
            f"{newest} was {members.heartbeat.catalog} before"
        )
        members.heartbeat = replace(
            members.heartbeat,
            leaving=leaving or members.heartbeat.leaving,
            era=0 if row is None else row.place.era,
            durable=0 if row is None else row.durable,
            lost=self._writer.lost,
            catalog=newest,
        )
        return members.heartbeat

    def pinged(self, heartbeat: Heartbeat) -> Heartbeat:
        """Take in what another broker says of itself; return what this one does."""
        if self._members.hear(heartbeat):
            self._watch.news.notify()
        return self.heartbeat()

    async def beat(self, *, leaving: bool = False) -> None:
        """Show a sign of life. Raise ``NameTaken`` if a broker that started later has our name.

        So one that was frozen stops. One that was taken for dead has itself named again.
        """
        await self._be_named()
        self.heartbeat(leaving=leaving)
        if not self.is_calm:
            await self._members.write()

    async def _be_named(self) -> None:
        ours = self._members.heartbeat
        name, us = ours.name, Member(incarnation=ours.incarnation, address=ours.address)
        if not ours.leaving and self._catalogs.newest.members.get(name) != us:
            await self._catalogs.change(
                lambda x: with_member(x, name, us, again=self._was_named)
            )
            self._was_named = True
        if self._catalogs.newest.members.get(name, us) != us:
            raise name_taken(name)

    async def look(self) -> None:
        """Tell the others what is new here, and see who lives."""
        self.heartbeat()
        if await self._members.look(self._catalogs.newest.members):
            self._watch.news.notify()

    async def rest(self) -> None:
        """Wait until it is time to look again: at once where others may know no news."""
        if self._members.announced == self._catalogs.newest.number:
            until = asyncio.get_running_loop().time() + self._members.rest()
            await self._watch.news.wait(until)
