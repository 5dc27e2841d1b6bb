"""All leases, known by what has changed since the last listing."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.leases.conditional import ConditionalOwnership
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import ContainerRefused, ContainerUnavailable
from changefeed.leases.lease import HostName, Incarnation, Lease, Member
from changefeed.leases.listing import (
    WHOLE,
    AskFleet,
    LeaseListing,
    ListedChanges,
    ListedFleet,
)
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.postgres.tables import LEASES, PostgresTable
from changefeed.leases.sqlite.container import SqliteLeases
from tests.support import make
from tests.support.shown_by_changes import ShownByChanges

A, A1 = HostName("a"), Incarnation("a-1")


class Counted(MemoryLeases):
    """Knows since when it was asked, and how much it answered; it may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []
        self.away = False

    async def changes_since(self, token: str) -> ListedChanges | None:
        if self.away:
            raise ContainerUnavailable("no answer")
        changes = await super().changes_since(token)
        assert changes is not None
        self.asked.append((token, len(changes.leases)))
        return changes


class Stage:
    """Three leases, and a host that lists them; ``now`` is its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.leases = Counted()
        self.listing = LeaseListing(self.leases, lambda: self.now)

    async def filled(self) -> Sequence[Lease]:
        for n in range(3):
            await self.leases.create(make.lease(f"r{n}", at="0"))
        return await self.listing.list()

    async def agrees(self) -> bool:
        known, stored = await self.listing.list(), await self.leases.list()
        return {x.range_id: x for x in known} == {x.range_id: x for x in stored}


async def test_at_rest_a_listing_answers_with_nothing_but_the_count() -> None:
    stage = Stage()
    assert len(await stage.filled()) == 3
    assert len(await stage.listing.list()) == 3
    assert [answered for _, answered in stage.leases.asked] == [3, 0]


async def test_where_deletes_are_not_counted_one_is_seen_in_doubt_or_within_a_minute() -> None:
    class Uncounted(MemoryLeases):
        async def changes_since(self, token: str) -> ListedChanges | None:
            changes = await super().changes_since(token)
            return changes and replace(changes, total=None)

    now = 0.0
    leases = Uncounted()
    listing = LeaseListing(leases, lambda: now)
    for n in range(3):
        await leases.create(make.lease(f"r{n}", at="0"))
    known = await listing.list()
    await leases.delete(known[0])
    assert len(await listing.list()) == 3
    listing.doubt()
    assert len(await listing.list()) == 2
    await leases.delete(known[1])
    assert len(await listing.list()) == 2
    now = 60.0
    assert len(await listing.list()) == 1


async def test_every_minute_all_are_listed() -> None:
    stage = Stage()
    await stage.filled()
    for stage.now in (30.0, 59.0, 60.0, 61.0):
        await stage.listing.list()
    assert [token == WHOLE for token, _ in stage.leases.asked] == [
        *(True, False, False),
        *(True, False),
    ]


async def test_a_listing_that_got_no_answer_leaves_the_next_one_whole() -> None:
    stage = Stage()
    first, *_ = await stage.filled()
    await stage.leases.acquire(first.taken_by(A, A1))
    stage.leases.away = True
    with pytest.raises(ContainerUnavailable):
        await stage.listing.list()
    stage.leases.away = False
    assert await stage.agrees()


class Asked(ShownByChanges):
    """Knows what it was asked for; ``silent`` says nothing of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.silent = False

    async def members(self) -> Sequence[Member]:
        self.asked.append("members")
        return await super().members()

    async def changes_since(self, token: str) -> ListedChanges | None:
        self.asked.append("changes" if token else "whole")
        return None if self.silent else await super().changes_since(token)


async def alone(ask: AskFleet) -> ListedFleet | None:
    """Send no heartbeat along."""
    return await ask(None)


async def test_members_that_the_same_answer_shows_are_not_asked_for() -> None:
    container = Asked()
    listing = LeaseListing(container, lambda: 0.0)
    a = await container.put_member(make.member("a"))
    assert await listing.list_fleet(alone) == ([], [a])
    container.asked.clear()
    b = await container.put_member(make.member("b"))
    assert await listing.list_fleet(alone) == ([], [a, b])
    a = await container.put_member(replace(a, heartbeats=1))
    assert await listing.list_fleet(alone) == ([], [a, b])
    assert container.asked == ["changes", "changes"]


async def test_while_changes_cannot_be_said_members_are_asked_for_and_none_is_missed() -> None:
    container = Asked()
    listing = LeaseListing(container, lambda: 0.0)
    a = await container.put_member(make.member("a"))
    await listing.list_fleet(alone)
    container.silent = True
    a = await container.put_member(replace(a, heartbeats=1))
    assert await listing.list_fleet(alone) == ([], [a])
    container.silent = False
    assert await listing.list_fleet(alone) == ([], [a])


async def test_a_container_that_can_say_no_changes_at_all_is_asked_for_them_once() -> None:
    container = Asked()
    container.silent = True
    listing = LeaseListing(container, lambda: 0.0)
    for _ in range(3):
        await listing.list_fleet(alone)
    assert container.asked == ["whole", "members", "members", "members"]


async def test_a_member_that_was_removed_without_a_sign_is_known_for_a_minute_at_most() -> None:
    now = 0.0
    container = ShownByChanges()
    listing = LeaseListing(container, lambda: now)
    a = await container.put_member(make.member("a"))
    await listing.list_fleet(alone)
    await container.remove_member(a)
    assert await listing.list_fleet(alone) == ([], [a])
    now = 60.0
    assert await listing.list_fleet(alone) == ([], [])


async def test_a_member_that_stops_is_known_no_more_as_soon_as_its_record_is_removed() -> None:
    container = Asked()
    listing = LeaseListing(container, lambda: 0.0)
    a = await container.put_member(make.member("a"))
    await listing.list_fleet(alone)
    a = await container.put_member(replace(a, stopping=True))
    assert await listing.list_fleet(alone) == ([], [a])
    await container.remove_member(a)
    assert await listing.list_fleet(alone) == ([], [])
    container.asked.clear()
    await listing.list_fleet(alone)
    assert container.asked == ["changes"]


async def test_a_server_that_is_only_like_postgresql_is_asked_once_and_listed_whole() -> None:
    asked = list[str]()

    class Database:
        async def fetch(self, statement: str, *_: str) -> Sequence[Mapping[str, object]]:
            asked.append("changes" if "pg_walfile_name" in statement else "all")
            if asked[-1] == "changes":
                raise ContainerRefused("there is no such function")
            return []

    table = PostgresTable(cast("Any", Database()), LEASES, "public", "fleet")
    leases = ConditionalOwnership(table, cast("Any", None), cast("Any", None))
    listing = LeaseListing(cast("Any", leases), lambda: 0.0)
    assert [await listing.list() for _ in range(2)] == [[], []]
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
    listing = LeaseListing(leases, lambda: 0.0)
    for step, n in [*steps, ("list", 0)]:
        stored = await leases.read(RangeId(f"r{n}"))
        match step:
            case "create":
                await leases.create(make.lease(f"r{n}", at="0"))
            case "acquire" if stored:
                await leases.acquire(stored.taken_by(A, A1))
            case "checkpoint" if stored:
                await leases.checkpoint(stored.advanced_to(Continuation("1")))
            case "delete" if stored:
                await leases.delete(stored)
            case "list":
                known = sorted(await listing.list(), key=lambda x: x.range_id)
                assert known == sorted(await leases.list(), key=lambda x: x.range_id)


@given(STEPS)
async def test_after_any_writes_all_that_is_stored_is_known(
    steps: Sequence[tuple[str, int]],
) -> None:
    await follow(MemoryLeases(), steps)


@pytest.mark.real_time
@given(STEPS)
@settings(max_examples=25, deadline=None)
def test_in_a_file_too(steps: Sequence[tuple[str, int]]) -> None:
    async def in_a_file(place: Path) -> None:
        async with SqliteLeases(place / "leases.db") as leases:
            await follow(leases, steps)

    with TemporaryDirectory() as place:
        asyncio.run(in_a_file(Path(place)))
