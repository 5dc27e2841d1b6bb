"""Leases in Cosmos DB, over the emulator: sharing with .NET, markers, faults, refusals."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from msgspec.structs import replace

from changefeed.cli.monitoring import opened_monitor
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos import client
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.host.settings import load_settings
from changefeed.leases.addresses import open_container
from changefeed.leases.container import LeaseContainer
from changefeed.leases.cosmos import creation_lock as markers
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet_record import join_fleet
from changefeed.leases.lease import HostName, Incarnation, Lease, WriteId
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.secret import Secret
from changefeed.stores.store import WHOLE, CallLimits
from changefeed.testing.lease_cast import not_refused
from cosmos_emulator import DEVELOPMENT_KEY
from cosmos_emulator.testing import running
from tests.support import make
from tests.support.dotnet_processor import DotNetHost

RANGES = [
    {"id": "0", "minInclusive": "", "maxExclusive": "1F"},
    {"id": "1", "minInclusive": "1F", "maxExclusive": "FF"},
]
HALVES = [
    FeedRange(id=RangeId("0"), high="1F"),
    FeedRange(id=RangeId("1"), low="1F", high="FF"),
]
_STATE = {"Continuation": {"Continuation": [{"token": '"42"'}]}}
JAVA_LEASE = {
    "id": "p..-FF",
    "LeaseToken": "-FF",
    "version": 1,
    "feedRange": {"Range": {"min": "", "max": "FF"}},
    "ContinuationToken": base64.b64encode(json.dumps(_STATE).encode()).decode(),
    "timestamp": "2026-08-01T10:00:00.123456Z[UTC]",
    "Owner": "java-1",
}
A, A1 = HostName("a"), Incarnation("a-1")
C0, C1 = Position('"0"'), Position('"17"')


class Place:
    """An emulator with a database ``d``, and openers of leases in it."""

    def __init__(self, url: str, client: CosmosClient, stack: AsyncExitStack) -> None:
        self.url = url
        self._client = client
        self._stack = stack

    async def leases(self, options: str = "?prefix=p", **means: Any) -> LeaseContainer:
        address = f"cosmos+{self.url}d/leases{options}"
        means = {"create": True} | means
        return await self._stack.enter_async_context(
            open_container(address, OpenOptions(**means))
        )

    async def raw(
        self, name: str = "leases", key: str = "/id", **options: Any
    ) -> ContainerProxy:
        """The container itself, made if need be."""
        database = await self._client.create_database_if_not_exists("d")
        made: ContainerProxy = await database.create_container_if_not_exists(
            name, PartitionKey(key), **options
        )
        return made

    async def dotnet(self, name: str = "net-1") -> DotNetHost:
        return DotNetHost(await self.raw(default_ttl=-1), "p", name)

    async def fault(self, operation: str, effect: str, **more: Any) -> None:
        body = {"effect": effect, "operation": operation, "times": 1} | more
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.url}_emulator/faults", json=body) as answer,
        ):
            assert answer.status == 200


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    async with (
        running() as url,
        CosmosClient(url, DEVELOPMENT_KEY) as client,
        AsyncExitStack() as stack,
    ):
        yield Place(url, client, stack)


def new(n: int = 0) -> Lease:
    return make.lease(HALVES[n], at=C0)


async def owned_by_a(leases: LeaseContainer) -> Lease:
    return await leases.acquire((await leases.create(new())).taken_by(A, A1))


# Sharing with .NET


async def test_a_dotnet_host_reads_renews_and_takes_our_leases_and_we_notice(
    place: Place,
) -> None:
    leases = await place.leases()
    owned = await owned_by_a(leases)
    owned = await leases.checkpoint(owned.advanced_to(C1))
    dotnet = await place.dotnet()
    (document,) = await dotnet.leases()
    assert (document["Owner"], document["ContinuationToken"]) == ("a", '"17"')
    assert (document["LeaseToken"], document["version"], document["Mode"]) == (
        "0",
        0,
        "Incremental Feed",
    )
    robbed = await dotnet.acquire(document)
    with pytest.raises(LeaseConflict, match="net-1"):
        await leases.replace(owned.without_position().renewed())
    (found,) = await leases.list()
    assert (found.owner, found.incarnation, found.epoch) == ("net-1", None, 2)
    await dotnet.renew(robbed)
    (later,) = await leases.list()
    assert later.epoch == 2
    assert later.sign_of_life != found.sign_of_life
    await dotnet.checkpoint(robbed, '"30"')
    await dotnet.release(robbed)
    (free,) = await leases.list()
    assert (free.owner, free.epoch) == (None, 2)
    back = await leases.acquire(free.taken_by(A, A1))
    assert (back.epoch, back.position) == (3, '"30"')


async def changed(leases: LeaseContainer, token: str) -> tuple[set[str], str]:
    found = await leases.list_fleet(token)
    return {x.range_id for x in found.leases}, found.token


async def test_a_listing_of_what_has_changed_shows_leases_and_members_of_one_fleet_alone(
    place: Place,
) -> None:
    leases, other = await place.leases(), await place.leases("?prefix=q")
    await leases.create(new(0))
    await leases.create(new(1))
    whole = await changed(leases, WHOLE)
    assert whole[0] == {"0", "1"}
    nothing = await changed(leases, whole[1])
    assert nothing[0] == set()
    await owned_by_a(other)
    await other.put_member(make.member("b"))
    await owned_by_a(leases)
    member = not_refused(await leases.put_member(make.member("a")))
    found = await changed(leases, whole[1])
    assert found[0] == {"0"}
    again = await leases.list_fleet(whole[1])
    assert again.members == [member]
    assert await changed(leases, found[1]) == (set(), found[1])


async def test_beside_a_dotnet_host_all_leases_are_listed_because_it_deletes_some(
    place: Place,
) -> None:
    leases = await place.leases()
    await owned_by_a(leases)
    ours = await changed(leases, WHOLE)
    dotnet = await place.dotnet()
    (document,) = await dotnet.leases()
    await dotnet.acquire(document)
    assert await changed(leases, ours[1]) == ({"0"}, WHOLE)
    assert await changed(leases, WHOLE) == ({"0"}, WHOLE)


async def test_leases_whose_change_feed_cannot_be_read_are_listed(place: Place) -> None:
    leases = await place.leases()
    await leases.create(new())
    whole = await changed(leases, WHOLE)
    await place.fault("change_feed", "error", status=403, times=3)
    assert await changed(leases, whole[1]) == ({"0"}, WHOLE)
    listed = [await changed(leases, WHOLE) for _ in range(16)]
    assert listed[-1][1] != WHOLE  # it can be by now, and is asked for now and then


async def test_a_lease_without_a_position_is_none_until_it_is_given_one(place: Place) -> None:
    dotnet = await place.dotnet()
    await dotnet.initialize(RANGES)
    await dotnet.acquire(await dotnet.read("1"))
    leases = await place.leases()
    assert list(await leases.list()) == []
    assert await leases.read(RangeId("1")) is None
    created = await leases.create(new(1))
    assert (created.owner, created.position) == ("net-1", C0)
    assert [x.range_id for x in await leases.list()] == ["1"]
    document = await dotnet.read("1")
    assert (document["Owner"], document["timestamp"]) == (
        "net-1",
        "2026-08-01T10:00:01.0000000Z",
    )


async def test_a_neighbour_that_forgets_our_part_of_a_lease_is_warned_of_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    leases = await place.leases()
    await owned_by_a(leases)
    await leases.list()
    assert "rewritten by others" not in caplog.text
    container = await place.raw()
    (document,) = [x async for x in container.read_all_items() if "LeaseToken" in x]
    del document["properties"]
    await container.upsert_item(document | {"Owner": "java-1"})
    for _ in range(2):
        await leases.list()
    warned = [x for x in caplog.records if "rewritten by others" in x.getMessage()]
    assert len(warned) == 1
    assert "java-1" in warned[0].getMessage()


async def test_leases_of_java_are_shown_to_those_who_only_look(place: Place) -> None:
    container = await place.raw()
    await container.create_item(JAVA_LEASE)
    leases = await place.leases(create=False, only_look=True)
    (listed,) = await leases.list()
    whole = await leases.read(listed.range_id)
    assert whole is not None
    assert (whole.range_id, whole.owner, whole.position) == ("-FF", "java-1", '"42"')
    names = [x["id"] async for x in container.read_all_items()]
    assert names == [JAVA_LEASE["id"]]  # nothing was written beside it


@pytest.mark.parametrize("actions", [False, True])
async def test_a_monitor_shows_leases_of_java_unless_it_acts(
    place: Place, *, actions: bool
) -> None:
    await (await place.raw()).create_item(JAVA_LEASE)
    address = f"cosmos+{place.url}d/leases?prefix=p"
    settings = load_settings(
        None, {"leases": {"address": address}, "feed": {"address": "eventlog:not/there"}}
    )
    async with (
        opened_monitor({"": settings}, actions=actions, lag_per_host=10) as app,
        TestClient(TestServer(app)) as client,
    ):
        text = await (await client.get("/page/state")).text()
    assert ("java-1" in text, "Java" in text) == (not actions, actions), text


async def test_the_prefix_of_a_dotnet_processor_is_made_from_its_feed(place: Place) -> None:
    feed = await place.raw("orders", "/pk")
    rid = (await feed.read())["_rid"]
    leases = await place.leases("?processor=billing&feed=d/orders")
    await leases.create(new())
    container = await place.raw()
    names = [x["id"] async for x in container.query_items("SELECT c.id FROM c")]
    (lease,) = [x for x in names if ".." in x]
    assert lease.startswith("billing127.0.0.1_")
    assert lease.endswith(f"=_{rid}..0")
    place.url = place.url.replace("127.0.0.1", "localhost")  # another name of the account
    again = await place.leases("?processor=billing&feed=d/orders")
    assert [x.range_id for x in await again.list()] == [new().range_id]
    await place.leases("?processor=bill&feed=d/orders")  # it has none of its own yet


async def test_leases_of_dotnet_with_keys_of_their_own_keep_them(place: Place) -> None:
    raw = await place.raw(key="/partitionKey")
    guid = "6c1bd2f7-5b39-4c7a-9d2e-0c8a3f6f3d11"
    theirs = {"LeaseToken": "0", "FeedRange": {"Range": {"min": "", "max": "1F"}}}
    await raw.create_item(
        {"id": "p..0", "partitionKey": guid, "version": 0, "ContinuationToken": '"7"', **theirs}
    )
    leases, other = await place.leases(), await place.leases()
    assert await other.create(new()) == await other.read(RangeId("0"))  # not a second one
    (listed,) = await leases.list()
    owned = await leases.acquire(listed.taken_by(A, A1))
    assert owned.position == '"7"'
    reached = await leases.checkpoint(owned.advanced_to(C1))
    await leases.replace(reached.released())
    (stored,) = [x async for x in raw.query_items("SELECT * FROM c WHERE c.id = 'p..0'")]
    assert (stored["partitionKey"], stored["ContinuationToken"]) == (guid, C1)
    (free,) = await other.list()
    await other.delete(free)
    assert await leases.list() == []


async def test_a_lease_that_version_2_of_dotnet_wrote_is_read(place: Place) -> None:
    raw = await place.raw()
    await raw.create_item({"id": "p..0", "PartitionId": "0", "ContinuationToken": '"7"'})
    leases = await place.leases()
    (listed,) = await leases.list()
    owned = await leases.acquire(listed.taken_by(A, A1))
    assert (owned.range_id, owned.position) == ("0", '"7"')
    await raw.create_item({"id": "p..odd", "ContinuationToken": '"7"'})
    with pytest.raises(StoreRefused, match=r"p\.\.odd"):
        await leases.list()


@pytest.mark.parametrize("key", ["/id", "/partitionKey"])
async def test_both_keys_of_lease_containers_will_do(place: Place, key: str) -> None:
    container = await place.raw(key=key)
    leases = await place.leases()
    owned = await owned_by_a(leases)
    await leases.checkpoint(owned.advanced_to(C1))
    await leases.put_member(make.member("a"))
    (listed,) = await leases.list()
    await leases.delete(listed)
    assert [x.name for x in await leases.members()] == [A]
    items = [dict(x) async for x in container.query_items("SELECT * FROM c")]
    assert all(x.get("partitionKey", x["id"]) == x["id"] for x in items)
    assert all(("partitionKey" in x) == (key == "/partitionKey") for x in items)


# Markers


async def markers_in(container: ContainerProxy) -> set[str]:
    names = [x["id"] async for x in container.query_items("SELECT c.id FROM c")]
    return {x for x in names if x in ("p.info", "p.lock")}


@pytest.mark.parametrize("listing", ["whole", "by changes"])
async def test_creating_leases_is_marked_until_the_next_listing_of_any_kind(
    place: Place, listing: str
) -> None:
    leases = await place.leases()
    container = await place.raw()
    begun = await leases.list_fleet()
    await leases.create(new(0))
    await leases.create(new(1))
    assert await markers_in(container) == {"p.lock"}
    dotnet = await place.dotnet()
    assert not await dotnet.initialize(RANGES)
    if listing == "whole":
        await leases.list()
    else:
        await leases.list_fleet(begun.token)
    assert await markers_in(container) == {"p.info"}
    assert await dotnet.initialize(RANGES)
    assert len(await dotnet.leases()) == 2


async def test_the_mark_of_a_creator_that_died_is_set_right_by_the_next_to_list(
    place: Place,
) -> None:
    container = await place.raw()  # without a time to live: its lock would stay for ever
    await (await place.leases()).create(new())
    assert await markers_in(container) == {"p.lock"}
    await (await place.leases()).list()
    assert "p.info" in await markers_in(container)
    assert await (await place.dotnet()).initialize(RANGES)


@pytest.mark.parametrize("lock", [None, {"id": "p.lock", "ttl": 30}])
async def test_a_listing_marks_nothing_where_there_are_no_leases_or_dotnet_creates_them(
    place: Place, lock: dict[str, Any] | None
) -> None:
    container = await place.raw()
    if lock is not None:
        await container.create_item(lock)
        await (await place.dotnet()).create(RANGES[0], ContinuationToken=C0)
    await (await place.leases()).list()
    assert "p.info" not in await markers_in(container)


async def test_missing_leases_are_created_although_all_are_said_to_be_there(
    place: Place,
) -> None:
    dotnet = await place.dotnet()
    await dotnet.initialize(RANGES[:1])
    leases = await place.leases()
    await leases.create(new(1))
    assert [x.range_id for x in await leases.list()] == ["1"]
    assert await markers_in(await place.raw()) == {"p.info"}


async def test_who_creates_leases_is_waited_for_unless_he_is_dead(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = await place.raw()  # without a time to live: the lock stays for ever
    await container.create_item({"id": "p.lock", "ttl": 30})
    monkeypatch.setattr(markers, "_LOCK_SLACK", 0.2 - 30)
    leases = await place.leases()
    with pytest.raises(StoreUnavailable, match="another processor is creating") as waits:
        await leases.create(new())
    assert waits.value.retry_after == 5.0
    await asyncio.sleep(0.21)
    await container.replace_item("p.lock", {"id": "p.lock", "ttl": 30})  # it lives
    with pytest.raises(StoreUnavailable):
        await leases.create(new())
    await asyncio.sleep(0.21)
    await leases.create(new())
    await leases.list()
    assert await markers_in(container) == {"p.info"}


# Lost answers, throttling, faults


async def test_a_write_that_the_client_sends_twice_is_recognised(place: Place) -> None:
    leases = await place.leases()
    await leases.create(new(1))
    await place.fault("create_item", "drop", when="after")
    lease = await leases.create(new())
    lease = replace(lease, write_id=WriteId("w"))
    await place.fault("patch_item", "drop", when="after")
    taken = await leases.acquire(lease.taken_by(A, A1))
    await place.fault("patch_item", "drop", when="after")
    taken = await leases.replace(taken.without_position().renewed())
    await place.fault("patch_item", "drop", when="after")
    taken = await leases.checkpoint(taken.advanced_to(C1))
    assert await leases.read(RangeId("0")) == taken
    assert (taken.renewals, taken.position, taken.write_id) == (2, C1, "w")
    await place.fault("create_item", "drop", when="after")
    member = not_refused(await leases.put_member(make.member("a")))
    await place.fault("replace_item", "drop", when="after")
    member = not_refused(await leases.put_member(replace(member, heartbeats=1)))
    assert list(await leases.members()) == [member]


@pytest.mark.parametrize(
    ("status", "substatus"),
    [(408, 0), (410, 1007), (449, 0), (503, 0), (404, 1002), (500, 0), (403, 3), (403, 1008)],
)
async def test_what_may_pass_is_unavailable_and_no_answer_has_the_client_look_for_regions(
    place: Place, status: int, substatus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspect = Mock()
    monkeypatch.setattr(Failover, "_suspect", suspect)
    leases = await place.leases()
    await owned_by_a(leases)
    fault = {"status": status, "substatus": substatus, "times": 10_000, "container": "leases"}
    await place.fault("*", "error", **fault)
    leases = leases.bounded(CallLimits(timeout=5))  # its client follows writes for two minutes
    with pytest.raises(StoreUnavailable):
        await leases.list()
    with pytest.raises(StoreUnavailable):
        await leases.read(RangeId("0"))
    assert suspect.called is (status >= 500)


async def test_a_container_that_is_gone_is_no_lease_that_is_gone(place: Place) -> None:
    leases = await place.leases()
    owned = await owned_by_a(leases)
    fault = {"status": 404, "substatus": 1003, "times": 10_000, "container": "leases"}
    await place.fault("*", "error", **fault)
    asked: list[Awaitable[Any]] = [
        leases.read(RangeId("0")),
        leases.replace(owned.without_position().renewed()),
        leases.delete(owned),
    ]
    for ask in asked:
        with pytest.raises(StoreRefused, match="no such database or container"):
            await ask


async def test_a_throttled_container_says_when_to_ask_again_and_is_not_stormed(
    place: Place,
) -> None:
    leases = await place.leases()
    owned = await owned_by_a(leases)
    await place.fault("patch_item", "error", status=429, retry_after_ms=40, times=1000)
    with pytest.raises(StoreUnavailable, match="throughput") as throttled:
        await leases.replace(owned.without_position().renewed())
    assert throttled.value.retry_after == 0.04
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{place.url}_emulator/requests") as answer,
    ):
        assert (await answer.json())["patch_item"]["429"] <= 4


# What a person has to change


async def refusal(place: Place, options: str = "?prefix=p", **means: Any) -> str:
    with pytest.raises(StoreRefused) as refused:
        await place.leases(options, **means)
    return str(refused.value)


async def test_a_container_that_is_not_there_is_refused_or_created_ready_for_use(
    place: Place,
) -> None:
    assert "--set=leases.create=true" in await refusal(place, create=False)
    await place.leases(create=True)
    await place.leases(create=True)
    properties = await (await place.raw()).read()
    assert properties["defaultTtl"] == -1
    assert properties["partitionKey"]["paths"] == ["/id"]
    assert properties["indexingPolicy"]["excludedPaths"] == [{"path": "/*"}]
    await place.leases(create=False)


async def test_a_container_by_another_key_is_refused(place: Place) -> None:
    await place.raw(key="/pk")
    assert "has the partition key /pk, and leases need /id" in await refusal(place)


async def test_a_wrong_key_is_refused_and_shown_nowhere(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    wrong = DEVELOPMENT_KEY[:-6] + "AAAA=="
    said = await refusal(place, cosmos=CosmosAccess(key=Secret.of(wrong)))
    assert "CHANGEFEED_COSMOS__KEY" in said
    with pytest.raises(StoreRefused) as refused:
        await place.leases(cosmos=CosmosAccess(key=Secret.of(wrong)))
    chain: BaseException | None = refused.value
    while chain is not None:
        assert wrong not in repr(chain) + str(chain)
        chain = chain.__cause__
    assert wrong not in caplog.text


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ("?prefix=p&mode=some", "unknown mode 'some'"),
        ("?processor=p", "give both (in quotes"),
        ("?processor=p&feed=orders", "should be feed=DATABASE/CONTAINER"),
        (
            "?name=p",
            "unknown option 'name' in this address. Known options: feed, mode, prefix",
        ),
        ("?prefix=a/b", "prefix=a/b begins"),
        ("?processor=a%2Fb&feed=d/c", "processor=a/b begins"),
    ],
)
async def test_wrong_options_are_refused_with_advice(
    place: Place, options: str, advice: str
) -> None:
    await place.raw()
    assert advice in await refusal(place, options)


async def test_fleets_in_one_container_keep_the_identity_of_a_feed_each(place: Place) -> None:
    for prefix in ("one", "two"):
        leases = await place.leases(f"?prefix={prefix}")
        await join_fleet(leases, prefix)
        await leases.create(new())
        await join_fleet(leases, prefix)


# What it costs


async def test_the_leases_of_a_large_fleet_are_listed_by_one_request(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = []
    monkeypatch.setitem(client.LEASE_OPTIONS, "raw_response_hook", answers.append)
    leases = await place.leases()
    many = [FeedRange(id=RangeId(f"{n}")) for n in range(1050)]
    await asyncio.gather(*(leases.create(make.lease(x, at=C0)) for x in many))
    await leases.list()
    answers.clear()
    assert len(await leases.list()) == len(many)
    assert len(answers) == 1
