"""Commands of operators over a server, where one is away or has nothing yet: PostgreSQL."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import Lease
from tests.acceptance.test_operating import RANGES, made, place
from tests.support.commands import QUICK, running
from tests.support.fleet_stores import ENVIRONMENT, Store, in_postgres, opened, served
from tests.support.processes import PATIENCE, Running

pytestmark = pytest.mark.real_time
__all__ = ["made", "place"]  # the fixtures

PATIENT = (*QUICK, "--set=leases.expiration=15")
FEED = "--feed=eventlog:log"
NEEDS_FEED = ("status", "reset", "doctor", "leases", "positions")


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
        return {x["range"]: x for x in json.loads(said)["ranges"]}

    async def stored(self) -> list[Lease]:
        """Each lease as it is stored, in the order of ``RANGES``; none if it is not there."""
        async with opened(self._store) as leases:
            found = [await leases.read(RangeId(x)) for x in RANGES]
        return [x for x in found if x is not None]

    async def owned_by(self, *owners: str | None) -> bool:
        return [x.owner for x in await self.stored()] == list(owners)

    async def read(self) -> int:
        """How many changes are behind the checkpoints."""
        return sum(int((x.position or "").partition("/")[2] or 0) for x in await self.stored())


async def reaches(host: Running, state: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(3 * PATIENCE):
        while not await state():
            assert host.process.returncode is None, host.said
            await asyncio.sleep(0.1)


def anna(place: Path, store: Store, *more: str) -> AbstractAsyncContextManager[Running]:
    """Run a host that writes down what it is handed."""
    observer = ("--observer=jsonl", "--option=path=out.jsonl")
    return running(
        *("run", FEED, *store.flags, *PATIENT, "--name=anna", "--set=web.port=off"),
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


@pytest.fixture
def store() -> Iterator[Store]:
    with served(in_postgres) as made:
        yield made


@pytest.fixture
def operator(store: Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(place)
    return Operator(store)


async def test_a_fleet_is_looked_at_paused_reset_and_released_while_it_runs(
    place: Path, store: Store, operator: Operator
) -> None:
    async with anna(place, store) as host:
        await until_read(host, place, operator, 100)
        assert {x["owner"] for x in (await operator.leases()).values()} == {"anna"}
        assert '"problem"' not in await operator("doctor", "--watch=0", "--json")
        await operator("pause", RANGES[1], "--reason=the disk is full")
        await reaches(host, lambda: operator.owned_by("anna", None, "anna", "anna"))
        assert (await operator.leases())[RANGES[1]]["note"] == "the disk is full"
        refused = await operator("reset", RANGES[0], "--to=beginning", "--yes", code=2)
        assert f"{RANGES[0]} is owned by anna, which lives" in refused
        again = (await operator.stored())[1].position or ""
        await operator("reset", RANGES[1], "--to=beginning", "--yes")
        assert await operator("resume", RANGES[1]) == f"{RANGES[1]}: resumed\n"
        await until_read(host, place, operator, 100 + int(again.partition("/")[2]))
        epoch = (await operator.stored())[2].epoch
        assert "taken from anna" in await operator("release", RANGES[2])

        async def acquired_again() -> bool:
            lease = (await operator.stored())[2]
            return (lease.owner, lease.epoch) == ("anna", epoch + 2)

        await reaches(host, acquired_again)
        await host.stops()
    assert await operator.owned_by(None, None, None, None)


async def test_what_is_not_created_yet_is_said_with_advice_by_each_command(
    operator: Operator,
) -> None:
    for command in (
        *(["status"], ["pause", "--all"], ["resume"], ["release", RANGES[0]], ["doctor"]),
        ["reset", "--all", "--to=now", "--yes"],
    ):
        said = (await operator(*command, code=2)).replace("\n", "")
        assert "--create-lease-container" in said, command


async def test_a_server_that_is_away_is_said_by_each_command(
    store: Store, operator: Operator
) -> None:
    for server in store.servers:
        server.kill()
    for command in (["status"], ["pause", "--all"], ["release", RANGES[0]]):
        said = await operator(*command, code=1)
        assert f"127.0.0.1:{store.owner.port}" in said.replace("\n", ""), said
    assert "look at the network" in await operator("doctor", "--json", code=2)
