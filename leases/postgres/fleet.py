"""The fleet in one statement: a heartbeat, all members, and the leases that have changed."""

from dataclasses import replace
from typing import Any

import msgspec

from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Lease, Member, Version
from changefeed.leases.listing import ListedFleet
from changefeed.leases.postgres.connection import Database
from changefeed.leases.postgres.tables import PostgresTable, since
from changefeed.leases.tables import listed_changes


class PostgresFleet:
    """The leases and the members of a fleet: a ``FleetTable``."""

    def __init__(
        self, database: Database, leases: PostgresTable[Lease], members: PostgresTable[Member]
    ) -> None:
        self._database = database
        self._leases = leases
        self._members = members
        self._can_list = True

    async def list_fleet(self, token: str, heartbeat: Member | None) -> ListedFleet | None:
        if not self._can_list:
            return None
        statement, parameters = self._question(token, heartbeat)
        try:
            rows = await self._database.fetch(statement, *parameters)
        except ContainerRefused:
            self._can_list = False  # what is wrong with it shows when each is asked alone
            return None
        # A row of the members for each lease would be too much: the first has them all.
        recorded = next((x["members"] for x in rows if x["members"] is not None), "[]")
        members = {x.name: x for x in map(self._members.read, msgspec.json.decode(recorded))}
        written = None
        if heartbeat is not None and rows[0]["written"] is not None:
            written = replace(heartbeat, version=Version(rows[0]["written"]))
            members[written.name] = written  # a statement does not see its own writes
        return ListedFleet(
            changes=listed_changes(self._leases.changed(rows)),
            members=[*members.values()],
            heartbeat=written,
        )

    def _question(self, token: str, heartbeat: Member | None) -> tuple[str, list[Any]]:
        # Put together from statements of the tables: nothing comes from outside (S608).
        before, written, parameters = "", "null", list[Any]([self._leases.fleet])
        if heartbeat is not None:
            write, more = self._members.write(heartbeat.name, heartbeat)
            before, parameters = f"with beat as ({write}) ", [*more]
            written = "(select version from beat)"
        members = f"(select json_agg(m)::text from ({self._members.selection}) as m)"  # noqa: S608
        changes = self._leases.changes(len(parameters) + 1)
        statement = (
            f"{before}select x.*, {written} as written,"  # noqa: S608
            f" case when row_number() over () = 1 then {members} end as members"
            f" from ({changes}) as x"
        )
        parameters += since(token)
        last = len(parameters)
        assert f"${last}" in statement, f"parameter {last} has no place in {statement}"
        return statement, parameters
