"""All leases, known by what has changed since the last listing."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.container import LeaseContainer, ListedFleet
from changefeed.leases.fleet import LeaseListing
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.stored import StoredLeases
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.postgres.store import PostgresStore
from changefeed.stores.store import WHOLE
from tests.support import make

A, A1 = HostName("a"), Incarnation("a-1")


class Counted(MemoryLeases):
    """Knows since when it was asked, and how much it answered; it may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []
        self.away = False

    async def list_fleet(
        self, token: str = WHOLE, heartbeat: Member | None = None
    ) -> ListedFleet:
        if self.away:
            raise StoreUnavailable("no answer")
        found = await super().list_fleet(token, heartbeat)
        self.asked.append((token, len(found.leases)))
        return found


async def leases_of(listing: LeaseListing) -> Sequence[Lease]:
    leases, _ = await listing.list_fleet()
    return leases


class Stage:
    """Three leases, and a host that lists them; ``now`` is its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = Counted()
        self.listing = LeaseListing(self.leases.list_fleet, lambda: self.now)

    async def filled(self) -> Sequence[Lease]:
        for n in range(3):
            await self.leases.create(make.lease(f"r{n}", at="0"))
        return await leases_of(self.listing)


async def test_every_minute_all_are_listed() -> None:
    stage = Stage()
    await stage.filled()
    for stage.now in (30.0, 59.0, 60.0, 61.0):
        await leases_of(stage.listing)
    assert [token == WHOLE for token, _ in stage.leases.asked] == [
        *(True, False, False),
        *(True, False),
    ]


async def test_after_a_doubt_all_are_listed_once() -> None:
    stage = Stage()
    await stage.filled()
    stage.listing.doubt()
    for _ in range(2):
        await leases_of(stage.listing)
    assert [token == WHOLE for token, _ in stage.leases.asked] == [True, True, False]


async def test_a_server_that_is_only_like_postgresql_is_asked_once_and_listed_whole() -> None:
    asked = list[str]()

    class Database:
        async def fetch(self, statement: str, *_: str) -> Sequence[Mapping[str, object]]:
            asked.append("changes" if "pg_walfile_name" in statement else "all")
            if asked[-1] == "changes":
                raise StoreRefused("there is no such function")
            return []

    store = PostgresStore(cast("Any", Database()), "public", "fleet")
    listing = LeaseListing(StoredLeases(store).list_fleet, lambda: 0.0)
    assert [await leases_of(listing) for _ in range(2)] == [[], []]
    assert asked == ["changes", "all", "all"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "acquire", "checkpoint", "delete", "list"]),
        st.integers(0, 3),
    ),
    max_size=25,
)


async def follow(leases: LeaseContainer, steps: Sequence[tuple[str, int]]) -> None:
    """Do some writes, and compare what a host knows with what is stored after some."""
    listing = LeaseListing(leases.list_fleet, lambda: 0.0)
    for step, n in [*steps, ("list", 0)]:
        stored = await leases.read(RangeId(f"r{n}"))
        match step:
            case "create":
                await leases.create(make.lease(f"r{n}", at="0"))
            case "acquire" if stored:
                await leases.acquire(stored.taken_by(A, A1))
            case "checkpoint" if stored:
                await leases.checkpoint(stored.advanced_to(Position("1")))
            case "delete" if stored:
                await leases.delete(stored)
            case "list":
                known = sorted(await leases_of(listing), key=lambda x: x.range_id)
                assert known == sorted(await leases.list(), key=lambda x: x.range_id)


@given(STEPS)
async def test_after_any_writes_all_that_is_stored_is_known(
    steps: Sequence[tuple[str, int]],
) -> None:
    await follow(MemoryLeases(), steps)
