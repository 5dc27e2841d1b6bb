"""Commands of operators over PostgreSQL, Redis and Azure Blob, and over two of them at once."""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease
from tests.acceptance.test_operating import RANGES, made, place
from tests.support.commands import PATIENCE, QUICK, Running, running
from tests.support.fleet_stores import (
    ENVIRONMENT,
    MIXTURE,
    STORES,
    Store,
    in_blobs,
    in_postgres,
    in_redis_and_postgres,
    opened,
    store,
)

pytestmark = pytest.mark.real_time
__all__ = ["made", "place", "store"]  # the fixtures

PATIENT = (*QUICK, "--set=leases.call_timeout=10")
FEED = "--feed=eventlog:log"
NEEDS_FEED = ("status", "reset", "check", "leases", "positions")
EVERYWHERE = [*STORES, MIXTURE, in_redis_and_postgres]


class Operator:
    """Runs commands over the leases of a store, in the folder that is the current one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places = [x for x in store.flags if x != "--create-lease-container"]

    async def __call__(self, *arguments: str, code: int = 0, create: bool = False) -> str:
        """Run a command; return all it said. It must end with ``code``."""
        return (await self._ended(arguments, code=code, create=create)).output

    async def _ended(
        self, arguments: Sequence[str], *, code: int = 0, create: bool = False
    ) -> Result:
        places = self._store.flags if create else self._places
        feed = [FEED] if arguments[0] in NEEDS_FEED else []
        ended = await asyncio.to_thread(
            CliRunner().invoke, app, [*arguments, *feed, *places, *PATIENT], env=ENVIRONMENT
        )
        assert ended.exit_code == code, ended.output
        return ended

    async def leases(self) -> dict[str, dict[str, Any]]:
        """What ``status --json`` says of each range."""
        said = (await self._ended(("status", "--json"))).stdout
        return {x["range"]: x for x in json.loads(said)["leases"]}

    async def stored(self) -> list[Lease]:
        """Each lease as it is stored, in the order of ``RANGES``; none if it is not there."""
        async with opened(self._store) as leases:
            found = [await leases.read(RangeId(x)) for x in RANGES]
        return [x for x in found if x is not None]

    async def owned_by(self, *owners: str | None) -> bool:
        return [x.owner for x in await self.stored()] == list(owners)

    async def read(self) -> int:
        """How many changes are behind the checkpoints."""
        return sum(
            int((x.continuation or "").partition("/")[2] or 0) for x in await self.stored()
        )


async def reaches(host: Running, state: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(3 * PATIENCE):
        while not await state():
            assert host.process.returncode is None, host.said
            await asyncio.sleep(0.1)


def anna(place: Path, store: Store, *more: str) -> AbstractAsyncContextManager[Running]:
    """Run a host that writes down what it is handed."""
    observer = ("--observer=jsonl", "--option=path=out.jsonl")
    return running(
        *("run", FEED, *store.flags, *PATIENT, "--name=anna", "--set=web.enabled=false"),
        *(*observer, *more),
        cwd=place,
        env=ENVIRONMENT,
    )


def delivered(place: Path) -> list[int]:
    if not (place / "out.jsonl").exists():
        return []
    lines = (place / "out.jsonl").read_text().splitlines()
    return sorted(json.loads(x)["body"]["n"] for x in lines)


async def until_read(host: Running, place: Path, operator: Operator, count: int) -> None:
    """Wait until so many changes were handed out, and all is checkpointed."""

    async def so() -> bool:
        return len(delivered(place)) == count and await operator.read() == 100

    await reaches(host, so)


async def stopped(host: Running) -> None:
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0


async def read_all(place: Path, store: Store, count: int) -> None:
    async with anna(place, store) as host:
        await until_read(host, place, Operator(store), count)
        await stopped(host)


@pytest.fixture
def operator(store: Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(place)
    return Operator(store)


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_a_fleet_is_looked_at_paused_reset_and_released_while_it_runs(
    place: Path, store: Store, operator: Operator
) -> None:
    async with anna(place, store) as host:
        await until_read(host, place, operator, 100)
        assert {x["owner"] for x in (await operator.leases()).values()} == {"anna"}
        assert '"problem"' not in await operator("check", "--json")
        await operator("pause", RANGES[1], "--reason=the disk is full")
        await reaches(host, lambda: operator.owned_by("anna", None, "anna", "anna"))
        assert (await operator.leases())[RANGES[1]]["paused"] == "the disk is full"
        refused = await operator("reset", RANGES[0], "--to=beginning", "--yes", code=2)
        assert f"{RANGES[0]} is owned by anna, which lives" in refused
        again = (await operator.stored())[1].continuation or ""
        await operator("reset", RANGES[1], "--to=beginning", "--yes")
        assert await operator("resume", RANGES[1]) == f"{RANGES[1]}: resumed\n"
        await until_read(host, place, operator, 100 + int(again.partition("/")[2]))
        epoch = (await operator.stored())[2].epoch
        assert "taken from anna" in await operator("release", RANGES[2])

        async def acquired_again() -> bool:
            lease = (await operator.stored())[2]
            return (lease.owner, lease.epoch) == ("anna", epoch + 2)

        await reaches(host, acquired_again)
        await stopped(host)
    assert await operator.owned_by(None, None, None, None)


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_a_stopped_fleet_is_looked_at_paused_reset_and_read_again(
    place: Path, store: Store, operator: Operator
) -> None:
    await read_all(place, store, 100)
    assert {x["owner"] for x in (await operator.leases()).values()} == {None}
    assert "has no owner" in await operator("release", RANGES[0])
    assert (await operator("pause")).count(": paused") == 4
    assert {x["paused"] for x in (await operator.leases()).values()} == {"paused by hand"}
    assert (await operator("resume")).count(": resumed") == 4
    reset = await operator("reset", "--all", "--to=beginning", "--yes")
    assert reset.count("moved to") == 4
    assert await operator.read() == 0
    assert '"problem"' not in await operator("check", "--json")
    await read_all(place, store, 200)
    assert delivered(place) == sorted([*range(100), *range(100)])


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_a_lease_is_taken_from_a_killed_host_and_another_goes_on_at_once(
    place: Path, store: Store, operator: Operator
) -> None:
    long = ("--set=leases.expiration=600", "--set=leases.renew_interval=10")
    async with anna(place, store, *long) as host:
        await until_read(host, place, operator, 100)
        host.process.kill()
        await host.ends()
    assert "its epoch 1 is over" in await operator("release", RANGES[2])
    async with anna(place, store, *long, "--name=ben") as ben:
        await reaches(ben, lambda: operator.owned_by("anna", "anna", "ben", "anna"))
        await stopped(ben)
    assert delivered(place) == list(range(100))  # from where it was


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_positions_are_imported_and_read_from_there(
    place: Path, store: Store, operator: Operator
) -> None:
    async with open_feed("eventlog:log") as feed:
        start = await feed.resolve_start(RangeId(RANGES[0]), "beginning")
    third = f"{start.partition('/')[0]}/3"
    positions = [{"range": x, "continuation": third, "epoch": 7} for x in RANGES]
    (place / "positions.json").write_text(json.dumps({"positions": positions}))
    async with opened(store):
        pass  # makes the tables, or the container
    tried = await operator("leases", "import", "file:positions.json", "--dry-run")
    assert tried.count(f"would start at {third}") == 4
    assert await operator.stored() == []
    await operator("leases", "import", "file:positions.json")
    assert [x.continuation for x in await operator.stored()] == [third] * 4
    assert "there already" in await operator("leases", "import", "file:positions.json")
    await read_all(place, store, 88)
    assert {x.epoch for x in await operator.stored()} == {8}
    moved = await operator("leases", "import", "file:positions.json", code=2)
    assert "hosts may be further on" in moved


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_positions_are_saved_and_given_back(
    place: Path, store: Store, operator: Operator
) -> None:
    await read_all(place, store, 100)
    before = [x.continuation for x in await operator.stored()]
    assert "before.json: 4 leases" in await operator("positions", "save", "before.json")
    await operator("reset", "--all", "--to=beginning", "--yes")
    assert await operator.read() == 0
    done = await operator("positions", "restore", "before.json", "--yes")
    assert done.count(": moved") == 4
    assert [x.continuation for x in await operator.stored()] == before
    assert await operator.owned_by(None, None, None, None)
    async with anna(place, store) as host:
        await host.says('"event": "lease.acquired"', times=4)
        await stopped(host)
    assert delivered(place) == list(range(100))  # nothing comes again


@pytest.mark.parametrize("store", [in_postgres, in_blobs, MIXTURE], indirect=True)
async def test_what_is_not_created_yet_is_said_with_advice_by_each_command(
    operator: Operator,
) -> None:
    for command in (
        *(["status"], ["pause"], ["resume"], ["release", RANGES[0]], ["check"]),
        ["reset", "--all", "--to=now", "--yes"],
    ):
        said = (await operator(*command, code=2)).replace("\n", "")
        assert "--create-lease-container" in said, command


@pytest.mark.parametrize("store", EVERYWHERE, indirect=True)
async def test_a_server_that_is_away_is_said_by_each_command(
    store: Store, operator: Operator
) -> None:
    for server in store.servers:
        server.kill()
    for command in (["status"], ["pause"], ["release", RANGES[0]]):
        said = await operator(*command, code=1)
        assert f"127.0.0.1:{store.owner.port}" in said.replace("\n", ""), said
    assert "look at the network" in await operator("check", "--json", code=2)
