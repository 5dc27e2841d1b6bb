"""Leases in PostgreSQL, Redis and Azure Blob by their addresses, over real servers."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore
from azure.storage.blob.aio import ContainerClient
from msgspec.structs import replace
from pydantic import SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Position, RangeId
from changefeed.leases.addresses import check_leases, open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet import LeaseListing
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.observers.dead_letters import open_dead_letters
from changefeed.runtime.diagnostics import Severity
from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable
from changefeed.stores.addresses import open_store
from changefeed.stores.blob.address import read_address as read_blob_address
from changefeed.stores.blob.connection import BlobSettings
from changefeed.stores.blob.connection import connect as connect_blob
from changefeed.stores.blob.metadata import MAX_METADATA
from changefeed.stores.blob.store import BlobStore
from changefeed.stores.postgres.address import read_address
from changefeed.stores.postgres.connection import connect
from changefeed.stores.postgres.schema import VERSION, stored_version
from changefeed.stores.store import WHOLE, Record
from changefeed.testing.lease_cast import not_refused
from tests.support import make, servers
from tests.support.cutting_proxy import cutting
from tests.support.handles import out_of_handles
from tests.support.lease_containers import over
from tests.support.processes import PATIENCE
from tests.support.servers import Azurite, Missing, PgBouncer, Postgres, Redis, Server

A, A1 = HostName("a"), Incarnation("a-1")
ServerT = TypeVar("ServerT", bound=Server)


def lease(name: str = "r0") -> Lease:
    return make.lease(name, at="c0")


def or_skipped(make: Callable[[], ServerT]) -> ServerT:
    try:
        return make()
    except Missing as missing:
        pytest.skip(str(missing))


@contextmanager
def own(make: Callable[[], ServerT]) -> Iterator[ServerT]:
    """Start a server for one test alone."""
    server = or_skipped(make)
    try:
        server.start()
        yield server
    finally:
        server.discard()


@pytest.fixture
def postgres() -> Postgres:
    return or_skipped(servers.postgres)


@pytest.fixture
def redis() -> Redis:
    return or_skipped(servers.redis)


@pytest.fixture
def azurite() -> Azurite:
    return or_skipped(servers.azurite)


def opening(azurite: Azurite | None = None, *, create: bool = True) -> OpenOptions:
    sections = {} if azurite is None else {"blob": {"key": azurite.key}}
    return OpenOptions(create=create, backends=sections)


def blob_address(azurite: Azurite, path: str) -> str:
    return f"blob+{azurite.endpoint}/{path}"


async def severities(address: str, options: OpenOptions) -> dict[str, Severity]:
    found = [x async for x in check_leases(address, options, feed="memory:x")]
    return {x.about: x.severity for x in found}


async def works(address: str, options: OpenOptions) -> None:
    async with open_container(address, options) as leases:
        made = await leases.create(lease())
        won = await leases.acquire(made.taken_by(A, A1))
        await leases.checkpoint(won.advanced_to(Position("c1")))
    async with open_container(address, OpenOptions(backends=options.backends)) as leases:
        (listed,) = await leases.list()
        assert listed.owner == A
        found = await leases.read(RangeId("r0"))
        assert found is not None
        assert found.position == "c1"


async def test_a_check_of_a_mistyped_name_makes_nothing(
    postgres: Postgres, redis: Redis
) -> None:
    address = f"{postgres.url}?schema=mistyped"
    for look in (opening(), dataclasses.replace(opening(), create=False, must_exist=True)):
        with pytest.raises(StoreMissing, match="schema 'mistyped'"):
            await severities(address, look)
    async with connect(read_address(address.removeprefix("postgresql:"))) as database:
        schemas = await database.fetch("select from pg_namespace where nspname = 'mistyped'")
    assert not schemas
    with pytest.raises(StoreMissing, match="no fleet at"):
        await severities(f"{redis.url}?fleet=mistyped", opening())
    assert redis.ask("KEYS", "*mistyped*") == "*0\r\n"


async def test_hosts_behind_a_pooler_share_leases(postgres: Postgres) -> None:
    names = [f"r{n}" for n in range(8)]

    async def own_one(leases: LeaseContainer, name: str) -> None:
        made = await leases.create(lease(name))
        won = await leases.acquire(made.taken_by(A, A1))
        for n in range(20):
            won = await leases.checkpoint(won.advanced_to(Position(f"c{n}")))

    with own(lambda: PgBouncer(postgres)) as pooler:
        address = f"{pooler.url}?fleet=pooled"
        async with (
            open_container(address, opening()) as a,
            open_container(address, opening()) as b,
        ):
            await asyncio.gather(
                *(own_one(x, y) for x, y in zip([a, b] * 4, names, strict=True))
            )
            assert [x.range_id for x in await b.list()] == names


async def test_ownership_in_redis_and_checkpoints_in_blobs(
    redis: Redis, azurite: Azurite
) -> None:
    owned, reached = f"{redis.url}?fleet=mixed", blob_address(azurite, "mixed/p")
    async with open_stores(owned, reached, opening(azurite)) as leases:
        made = await leases.create(lease())
        won = await leases.acquire(made.taken_by(A, A1))
        await leases.checkpoint(won.advanced_to(Position("c9")))
    redis.ask("FLUSHALL")
    async with open_stores(owned, reached, opening(azurite)) as leases:
        assert list(await leases.list()) == []
        again = await leases.create(lease())
        assert (again.owner, again.epoch, again.position) == (None, 1, "c9")


async def test_a_check_finds_containers_that_hosts_can_use(
    postgres: Postgres, redis: Redis, azurite: Azurite
) -> None:
    address = f"{postgres.url}?fleet=check"
    async with open_container(address, opening()):
        pass
    assert set((await severities(address, opening())).values()) == {Severity.FINE}
    address = f"{redis.url}?fleet=check"
    await works(address, opening())
    found = await severities(address, opening())
    assert found.pop("durability") is Severity.WARNING  # it has no append-only file
    assert set(found.values()) == {Severity.FINE}
    address = blob_address(azurite, "checked/p")
    async with open_container(address, opening(azurite)):
        pass
    assert set((await severities(address, opening(azurite))).values()) == {Severity.FINE}


async def test_a_container_that_is_not_there_is_created_only_where_asked(
    postgres: Postgres, azurite: Azurite
) -> None:
    tables = f"{postgres.url}?schema=not+yet"
    blobs = blob_address(azurite, "not-yet/p")
    options = opening(azurite, create=False)
    for address in (tables, blobs):
        with pytest.raises(StoreRefused, match=r"--set=leases\.create=true"):
            async with open_container(address, options):
                pass
        with pytest.raises(StoreMissing):
            await severities(address, options)
        await works(address, opening(azurite))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://nobody@127.0.0.1:1/x",
        "redis://127.0.0.1:1/0",
        "cosmos+http://127.0.0.1:1/d/leases",
    ],
)
async def test_a_server_that_is_not_there_is_unavailable(address: str) -> None:
    with pytest.raises(StoreUnavailable):
        async with open_container(address, opening()):
            pass
    with pytest.raises(StoreUnavailable):
        async with open_dead_letters(address, opening()):
            pass
    assert list((await severities(address, opening())).values()) == [Severity.PROBLEM]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "blob"])
async def test_a_host_out_of_file_handles_waits_for_its_leases(
    kind: str, tmp_path: Path
) -> None:
    async with over(kind)(tmp_path) as connect:
        await connect()  # the server runs, and what it needs is made
        with out_of_handles(), pytest.raises(StoreUnavailable):
            await connect()
        assert await (await connect()).list() == []


@pytest.mark.parametrize("kind", ["redis", "blob"])
async def test_a_write_that_its_client_sent_twice_is_known_as_its_own(
    kind: str, redis: Redis, azurite: Azurite
) -> None:
    """The client's library sends a request again when the connection ends unanswered."""
    async with cutting((redis if kind == "redis" else azurite).port) as proxy:
        addresses = {
            "redis": f"redis://127.0.0.1:{proxy.port}/0?fleet=twice",
            "blob": f"blob+http://127.0.0.1:{proxy.port}/{azurite.account}/twice/p",
        }
        async with open_container(addresses[kind], opening(azurite)) as leases:
            await leases.list()
            proxy.cut_the_next_answer()
            made = await leases.create(lease())
            proxy.cut_the_next_answer()
            won = await leases.acquire(made.taken_by(A, A1))
            assert (won.owner, won.epoch) == (A, 1)
            proxy.cut_the_next_answer()
            renewed = await leases.replace(won.without_position().renewed())
            proxy.cut_the_next_answer()
            reached = await leases.checkpoint(
                replace(renewed, checkpoint=won.checkpoint).advanced_to(Position("c1"))
            )
            proxy.cut_the_next_answer()
            await leases.replace(reached.released())
            proxy.cut_the_next_answer()
            member = not_refused(await leases.put_member(make.member("a")))
            proxy.cut_the_next_answer()
            await leases.put_member(replace(member, heartbeats=1))
            found = await leases.read(RangeId("r0"))
            assert found is not None
            assert (found.owner, found.position) == (None, "c1")
            with pytest.raises(LeaseConflict):
                await leases.acquire(won.taken_by(A, A1))
            assert proxy.cuts == 7


# PostgreSQL


async def test_fleets_in_one_database_do_not_see_each_other(postgres: Postgres) -> None:
    one, other = (f"{postgres.url}?fleet=apart{n}" for n in (1, 2))
    async with (
        open_container(one, opening()) as first,
        open_container(other, opening()) as second,
    ):
        await first.create(lease())
        assert list(await second.list()) == []
        assert await second.read(RangeId("r0")) is None
        assert (await second.create(lease())).version != (await first.list())[0].version


async def test_a_write_that_is_committed_later_is_among_what_has_changed(
    postgres: Postgres,
) -> None:
    address = f"{postgres.url}?schema=later"
    database = connect(read_address(address.removeprefix("postgresql:")))
    async with open_container(address, opening()) as leases, database as slow:
        await leases.create(lease("r0"))
        other = await leases.create(lease("r1"))
        start = await leases.list_fleet()
        async with slow.transaction() as transaction:
            await transaction.execute(
                "update later.records set body = jsonb_set(body::jsonb, '{renewals}', '7')"
                "::text where key = 'r0'"
            )
            await leases.replace(other.renewed())
            before = await leases.list_fleet(start.token)
        after = await leases.list_fleet(before.token)
    assert "r1" in {x.range_id for x in before.leases}
    assert [x.renewals for x in after.leases if x.range_id == "r0"] == [7]


async def test_after_a_failover_all_leases_are_listed(postgres: Postgres) -> None:
    async with open_container(f"{postgres.url}?schema=promoted", opening()) as leases:
        for n in range(2):
            await leases.create(lease(f"r{n}"))
        whole = await leases.list_fleet()
        timeline, _, oldest = whole.token.partition(":")
        same, other = f"{timeline}:{oldest}", f"{int(timeline, 16) + 1:08X}:{oldest}"
        ahead = f"{timeline}:{(int(oldest) + 1_000_000) % 2**32}"
        counts = []
        for token in (same, other, ahead):
            found = await leases.list_fleet(token)
            counts.append(len(found.leases))
        assert counts == [0, 2, 2]


async def listed_since(leases: LeaseContainer, token: str) -> tuple[set[str], str]:
    found = await leases.list_fleet(token)
    assert found.total == len(await leases.list())
    return {x.range_id for x in found.leases}, found.token


async def test_redis_lists_what_was_written_since_and_all_where_it_has_lost_that(
    redis: Redis,
) -> None:
    key = "changefeed:{since}:newest"
    async with open_container(f"{redis.url}?fleet=since", opening()) as leases:
        made = [await leases.create(lease(f"r{n}")) for n in range(3)]
        found, start = await listed_since(leases, WHOLE)
        assert found == {"r0", "r1", "r2"}
        assert await listed_since(leases, start) == (set(), start)
        before = redis.ask("GET", key).split()[1]
        owned = await leases.acquire(made[1].taken_by(A, A1))
        await leases.checkpoint(owned.advanced_to(Position("c1")))
        found, later = await listed_since(leases, start)
        assert found == {"r1"}
        await leases.delete(made[2])
        assert await listed_since(leases, later) == (set(), later)
        redis.ask("SET", key, before)  # an older copy of what it kept
        assert (await listed_since(leases, later))[0] == {"r0", "r1"}
        redis.ask("SET", key, "9000000000000000")  # its clock was ahead, and is set right
        _, ahead = await listed_since(leases, WHOLE)
        await leases.create(lease("r3"))
        assert (await listed_since(leases, ahead))[0] == {"r3"}


async def test_nothing_of_a_deleted_lease_is_left_in_redis(redis: Redis) -> None:
    async with open_container(f"{redis.url}?fleet=deleted", opening()) as leases:
        made = await leases.create(lease())
        assert redis.ask("ZCARD", "changefeed:{deleted}:leases.changes") == ":1\r\n"
        await leases.delete(made)
    for ask, kept in (
        ("HLEN", "leases"),
        ("HLEN", "leases.positions"),
        ("ZCARD", "leases.changes"),
    ):
        assert redis.ask(ask, f"changefeed:{{deleted}}:{kept}") == ":0\r\n"


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION - 1, "name another schema"), (VERSION + 1, "upgrade")]
)
async def test_tables_of_another_version_are_refused_with_advice(
    postgres: Postgres, version: int, advice: str
) -> None:
    address = f"{postgres.url}?schema=other{version}"
    async with open_container(address, opening()) as leases:
        await leases.create(lease())
    async with connect(read_address(address.removeprefix("postgresql:"))) as database:
        await database.fetch(f"update other{version}.schema_version set version = {version}")
        for create in (False, True):
            with pytest.raises(StoreRefused, match=rf"{VERSION} only: {advice}"):
                async with open_container(address, opening(create=create)):
                    pass
        assert len(await database.fetch(f"select from other{version}.leases")) == 1
        assert await stored_version(database, f"other{version}") == version


async def test_a_role_needs_no_more_than_to_read_and_write_rows(postgres: Postgres) -> None:
    address = f"{postgres.url}?schema=rights"
    async with open_container(address, opening()) as leases:
        await leases.create(lease())
    limited = address.replace("//postgres@", "//limited@")
    async with connect(read_address(address.removeprefix("postgresql:"))) as database:
        await database.fetch("create role limited login")
        await database.fetch("grant usage on schema rights to limited")
        await database.fetch("grant select on rights.schema_version to limited")
        assert (await severities(limited, opening()))["rights"] is Severity.PROBLEM
        await database.fetch(
            "grant select, insert, update, delete on all tables in schema rights to limited"
        )
        async with open_store(limited, opening()) as store:
            await database.fetch("revoke select on rights.records from limited")
            with pytest.raises(StoreRefused):
                await store.list({"lease"})
            await database.fetch("grant select on rights.records to limited")
            assert (await store.list({"lease"})).token, "changes are listed again"
    assert set((await severities(limited, opening())).values()) == {Severity.FINE}
    async with open_container(limited, opening()) as leases:
        assert len(await leases.list()) == 1


async def test_a_restarted_server_is_found_again() -> None:
    with own(Postgres) as server:
        async with open_container(server.url, opening()) as leases:
            await leases.create(lease())
            server.kill()
            with pytest.raises(StoreUnavailable):
                await leases.list()
            server.start()
            (listed,) = await leases.list()
            assert (await leases.acquire(listed.taken_by(A, A1))).epoch == 1


async def test_connections_that_an_administrator_ends_are_made_again(
    postgres: Postgres,
) -> None:
    """As before an upgrade, or by a proxy that moves its clients to another server."""
    address = f"{postgres.url}?fleet=ended"
    async with open_container(address, opening()) as leases:
        created = await leases.create(lease())
        async with connect(read_address(postgres.url.removeprefix("postgresql:"))) as other:
            ended = await other.fetch(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where application_name like 'changefeed%' and pid <> pg_backend_pid()"
            )
        assert len(ended) >= 1
        assert (await leases.acquire(created.taken_by(A, A1))).epoch == 1
        assert len(await leases.list()) == 1


async def test_a_call_to_a_frozen_server_ends_when_it_is_cancelled() -> None:
    with own(Postgres) as server:
        async with open_container(server.url, opening()) as leases:
            await leases.create(lease())
            server.freeze()
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await leases.list()
            assert time.monotonic() - began < 30
            server.thaw()
            assert len(await leases.list()) == 1


async def test_a_server_that_takes_no_writes_is_not_the_primary(postgres: Postgres) -> None:
    address = f"{postgres.url}?fleet=standby&default_transaction_read_only=on"
    with pytest.raises(StoreUnavailable, match="only a read-only standby answers"):
        async with open_container(address, opening()):
            pass


# Redis


async def test_a_redis_that_may_evict_leases_is_refused() -> None:
    with own(
        lambda: Redis("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
    ) as server:
        with pytest.raises(StoreRefused, match="noeviction"):
            async with open_container(server.url):
                pass
        assert await severities(server.url, opening()) == {"leases": Severity.PROBLEM}


async def test_a_replica_is_not_the_primary(redis: Redis) -> None:
    with own(lambda: Redis("--replicaof", "127.0.0.1", str(redis.port))) as replica:
        with pytest.raises(StoreUnavailable, match="replica"):
            async with open_container(replica.url):
                pass
        assert await severities(replica.url, opening()) == {"leases": Severity.PROBLEM}


async def test_a_redis_that_was_demoted_is_left_for_the_one_that_took_over(
    redis: Redis,
) -> None:
    with own(Redis) as first:
        async with cutting(first.port) as proxy:
            address = f"redis://127.0.0.1:{proxy.port}/0?fleet=promoted"
            async with open_container(address, opening()) as leases:
                await leases.create(lease())
                first.ask("REPLICAOF", "127.0.0.1", str(redis.port))
                proxy.lead_to(redis.port)
                with pytest.raises(StoreUnavailable, match="it is a replica now"):
                    await leases.create(lease("r1"))
                assert (await leases.create(lease("r1"))).range_id == "r1"


async def one_node_cluster(node: Redis) -> None:
    """Give all slots to a node, and wait until it serves them."""
    node.ask("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    async with asyncio.timeout(PATIENCE):
        while "cluster_state:ok" not in node.ask("CLUSTER", "INFO"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_fleet_in_a_redis_cluster(redis: Redis) -> None:
    del redis  # skipped where there is none
    options = ("--cluster-enabled", "yes", "--cluster-port", str(servers.free_port()))
    with own(lambda: Redis(*options)) as node:
        address = f"{node.url}?cluster=true&fleet=" + "{a}"
        with pytest.raises(StoreUnavailable, match="the cluster is not whole"):
            await works(address, opening())
        await one_node_cluster(node)
        await works(address, opening())


async def test_a_redis_cluster_that_is_away_is_waited_for(redis: Redis) -> None:
    del redis  # skipped where there is none
    options = ("--cluster-enabled", "yes", "--cluster-port", str(servers.free_port()))
    with own(lambda: Redis(*options)) as node:
        await one_node_cluster(node)
        address = f"{node.url}?cluster=true"
        async with open_container(address, opening()) as leases:
            await leases.create(lease())
            node.kill()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="no answer"):
                    await leases.list()
            with pytest.raises(StoreUnavailable, match="no answer"):
                await works(address, opening())
            node.start()
            await one_node_cluster(node)
            assert list(await leases.list()) == []


async def test_a_redis_that_is_no_cluster_is_refused_as_one(redis: Redis) -> None:
    with pytest.raises(StoreRefused, match="leave cluster=true out"):
        await works(f"{redis.url}?cluster=true", opening())


@pytest.mark.parametrize("cluster", [False, True], ids=["one server", "cluster"])
async def test_a_burst_of_calls_waits_for_connections_and_fails_none(
    redis: Redis, *, cluster: bool
) -> None:
    del redis  # skipped where there is none
    options = ("--cluster-enabled", "yes", "--cluster-port", str(servers.free_port()))
    with own(lambda: Redis(*(options if cluster else ()))) as server:
        address = server.url
        if cluster:
            await one_node_cluster(server)
            address += "?cluster=true"
        async with open_container(address, opening()) as leases:
            await asyncio.gather(*(leases.create(lease(f"r{n}")) for n in range(500)))
            assert len(await leases.list()) == 500
            clients = int(server.ask("INFO", "clients").partition("connected_clients:")[2][:3])
            assert clients < 30


async def test_keys_of_another_program_are_refused(redis: Redis) -> None:
    address = f"{redis.url}?fleet=foreign"
    redis.ask("SET", "changefeed:{foreign}:leases", "x")
    async with open_container(address) as leases:
        with pytest.raises(StoreRefused, match="fleet="):
            await leases.list()


# Azure Blob and the Event Hubs SDK

HUB = ("ns.servicebus.windows.net", "Hub", "$Default")


def their_ownership(owner: str, partition: str, etag: str | None = None) -> dict[str, object]:
    names = ("fully_qualified_namespace", "eventhub_name", "consumer_group")
    where = dict(zip(names, HUB, strict=True))
    return {**where, "partition_id": partition, "owner_id": owner, "etag": etag}


async def test_an_event_processor_lists_what_hosts_wrote(azurite: Azurite) -> None:
    address = blob_address(azurite, f"hub-ours/{'/'.join(HUB)}")
    theirs = BlobCheckpointStore.from_connection_string(azurite.connection_string, "hub-ours")
    async with open_container(address, opening(azurite)) as leases, theirs:
        await leases.put_member(make.member("a"))
        made = await leases.create(lease("0"))
        won = await leases.acquire(made.taken_by(A, A1))
        await leases.checkpoint(won.advanced_to(Position("42")))
        (owned,) = await theirs.list_ownership(*HUB)
        assert (owned["partition_id"], owned["owner_id"]) == ("0", "a")
        (reached,) = await theirs.list_checkpoints(*HUB)
        assert (reached["offset"], reached["sequence_number"]) == ("42", 42)
        whole = "/".join(HUB).lower()  # versions below 1.1.2 read what begins so as ownership
        blobs = theirs._container_client.list_blobs(name_starts_with=f"{whole}/ownership")
        assert [x.name async for x in blobs] == [f"{whole}/ownership/0"]


async def test_leases_and_hosts_in_blobs_are_listed_in_one_request(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = blob_address(azurite, "listed-once/p")
    beside = [f"{address}/owner-else", f"{address}s"]  # whose names begin alike
    listed, really = list[str](), ContainerClient.list_blobs

    def counted(client: ContainerClient, *, name_starts_with: str, **options: Any) -> Any:
        listed.append(name_starts_with)
        return really(client, name_starts_with=name_starts_with, **options)

    async with AsyncExitStack() as opened:
        for place in beside:
            other = open_container(place, opening(azurite))
            await (await opened.enter_async_context(other)).create(lease("other"))
        leases = await opened.enter_async_context(open_container(address, opening(azurite)))
        for n in range(3):
            await leases.create(lease(f"r{n}"))
            await leases.put_member(make.member(f"h{n}"))
        monkeypatch.setattr(ContainerClient, "list_blobs", counted)
        listing = LeaseListing(leases.list_fleet, time.monotonic)
        for _ in range(2):
            found, members = await listing.list_fleet()
            assert sorted(x.range_id for x in found) == ["r0", "r1", "r2"]
            assert sorted(x.name for x in members) == ["h0", "h1", "h2"]
    assert listed == ["p/owner", "p/owner"]


async def test_a_container_of_blobs_that_is_gone_is_no_missing_lease(azurite: Azurite) -> None:
    address = blob_address(azurite, "gone-meanwhile/p")
    theirs = ContainerClient.from_connection_string(azurite.connection_string, "gone-meanwhile")
    async with open_container(address, opening(azurite)) as leases, theirs:
        assert await leases.read(RangeId("r0")) is None
        await theirs.delete_container()
        with pytest.raises(StoreRefused):
            await leases.read(RangeId("r0"))


async def test_a_long_record_that_has_become_short_since_it_was_listed_is_read(
    azurite: Azurite,
) -> None:
    place = blob_address(azurite, "shortened/p")
    address = read_blob_address(*place.split(":", 1))
    own = OpenOptions(settings=BlobSettings(key=SecretStr(azurite.key)))
    async with (
        open_container(place, opening(azurite)),
        connect_blob(address, own) as client,
    ):
        store = BlobStore(client, address)
        long = Record(kind="checkpoint", key="r0", body=b"{}", position="9" * MAX_METADATA)
        written = await store.put(long)
        assert written is not None
        listed = [x async for x in client.list_blobs(include=["metadata"])]
        short = await store.put(replace(written, position="10"))
        assert [await store._read("checkpoint", x) for x in listed] == [short]


async def test_hosts_read_what_an_event_processor_wrote_and_go_on_from_there(
    azurite: Azurite,
) -> None:
    address = blob_address(azurite, f"hub-theirs/{'/'.join(HUB)}")
    theirs = BlobCheckpointStore.from_connection_string(azurite.connection_string, "hub-theirs")
    async with open_container(address, opening(azurite)) as leases, theirs:
        await theirs.claim_ownership([their_ownership("their-host", "0")])
        await theirs.update_checkpoint(
            {**their_ownership("", "0"), "offset": "77", "sequence_number": 5}
        )
        found = await leases.read(RangeId("0"))
        assert found is not None
        assert (found.owner, found.position) == ("their-host", "77")
        won = await leases.acquire(found.taken_by(A, A1))
        assert won.position == "77"
        # They take it back by its etag, and what is ours in it is lost; epochs go on.
        (owned,) = await theirs.list_ownership(*HUB)
        await asyncio.sleep(1.1)
        (taken,) = await theirs.claim_ownership(
            [their_ownership("their-host", "0", owned["etag"])]
        )
        assert taken["owner_id"] == "their-host"
        (listed,) = await leases.list()
        assert listed.owner == "their-host"
        assert listed.epoch >= won.epoch
        again = await leases.acquire(listed.taken_by(A, A1))
        assert again.epoch > won.epoch
        assert again.position == "77"
