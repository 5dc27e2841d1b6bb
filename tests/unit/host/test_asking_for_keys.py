"""What a person asks of the owner of a range, from outside, for a key that waits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.cli.waiting_keys import ask_owner
from changefeed.feeds.feed import Change
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import Failure, StoreUnavailable, UserError
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.logs import captured_logs
from tests.support.looking import lease_in, now, until
from tests.support.renewed_each import RenewedEach

PATIENT: dict[str, Any] = {"on_failure": "dead-letter", "retry": {"attempts": None}}


class Failing:
    def __init__(self, *numbers: int) -> None:
        self.fails_on = set(numbers)
        self.tried: list[float] = []

    async def process(self, changes: Sequence[Change]) -> None:
        found = [n for x in changes if (n := int(x.value()["n"])) in self.fails_on]
        if found:
            self.tried.append(now())
            raise ValueError("no such table")


def fleet_of(observer: Failing, settings: Any, leases: LeaseContainer | None = None) -> Fleet:
    feed = make.memory_feed(1, 20)
    sections = {"observer": settings}
    return Fleet(feed, leases, settings=sections, observer=observer.process)


async def ask(fleet: Fleet, key: str, *, aside: bool = False) -> str:
    return await ask_owner(fleet.container, "r0", key, aside=aside, patience=30)


@pytest.mark.parametrize("leases", [MemoryLeases, RenewedEach])
async def test_a_change_that_waits_is_put_aside_when_a_person_asks_for_it(
    leases: type[LeaseContainer],
) -> None:
    async with fleet_of(Failing(5, 6), PATIENT, leases()) as fleet:
        fleet.start("anna")
        await asyncio.sleep(600)
        assert await fleet.dead_letters() == []
        began = now()
        assert "anna tries the change" in await ask(fleet, "key-5", aside=True)
        assert now() - began < 12
        await asyncio.sleep(1)
        (letter,) = await fleet.dead_letters()
        assert (letter.change.key, letter.failure.text) == ("key-5", "no such table")
        assert "raise ValueError" in letter.failure.trace
        health = (await lease_in(fleet.container)).health
        assert "does not wait at anna" in await ask(fleet, "key-5", aside=True)
        assert "does not wait at anna" in await ask(fleet, "key-7", aside=True)
        await asyncio.sleep(15)
        health = (await lease_in(fleet.container)).health
        assert (health.waiting, health.oldest and health.oldest.key) == (1, "key-6")


@pytest.mark.parametrize("poison", [(5,), range(20)], ids=["one key", "an outage"])
async def test_a_change_that_waits_is_tried_when_a_person_asks_for_it(
    poison: Sequence[int],
) -> None:
    observer = Failing(*poison)
    async with fleet_of(observer, {}) as fleet:
        fleet.start("anna")
        await asyncio.sleep(3600)
        waits = max(y - x for x, y in zip(observer.tried, observer.tried[1:], strict=False))
        assert waits > 25
        observer.fails_on.clear()
        began = now()
        assert "anna tries the change that key 'key-5'" in await ask(fleet, "key-5")
        await asyncio.sleep(1)
        assert now() - began < 10
        assert sorted(int(x.value()["n"]) for x in fleet.log.changes) == list(range(20))


async def test_a_change_that_fails_again_when_a_person_asks_for_it_is_tried_once() -> None:
    observer = Failing(5)
    async with fleet_of(observer, {}) as fleet:
        fleet.start("anna")
        await asyncio.sleep(3600)
        await until(lambda: now() - observer.tried[-1] < 1)
        observer.tried.clear()
        await ask(fleet, "key-5")
        await asyncio.sleep(5)
        assert len(observer.tried) == 1


class Unanswering(MemoryLeases):
    """Takes no answer of an owner."""

    async def replace(self, lease: Lease) -> Lease:
        if lease.owner is not None and lease.key_request and lease.key_request.answer:
            raise StoreUnavailable("busy")
        return await super().replace(lease)


async def test_a_lease_is_given_up_well_while_an_answer_cannot_be_written() -> None:
    async with fleet_of(Failing(5), {}, Unanswering()) as fleet:
        fleet.start("anna")
        await asyncio.sleep(60)
        with pytest.raises(Failure, match="anna has not answered"):
            await ask(fleet, "key-5")
        with captured_logs("DEBUG") as logged:
            await fleet.stop("anna")
        assert [x["how"] for x in logged if x["event"] == "lease.released"] == ["released"]


async def test_who_puts_nothing_aside_says_so_and_goes_on_trying() -> None:
    async with fleet_of(Failing(5), {}) as fleet:
        fleet.start("anna")
        await asyncio.sleep(60)
        with pytest.raises(UserError, match=r"anna puts nothing aside.*on_failure"):
            await ask(fleet, "key-5", aside=True)
        assert (await lease_in(fleet.container)).health.waiting == 1


async def test_what_nobody_can_answer_is_told() -> None:
    async with fleet_of(Failing(5), PATIENT) as fleet:
        fleet.start("anna")
        await asyncio.sleep(60)
        with pytest.raises(UserError, match="no lease of a range 'r9'"):
            await ask_owner(fleet.container, "r9", "key-5", aside=True, patience=30)
        await fleet.kill("anna")
        with pytest.raises(Failure, match="anna has not answered for 30 s"):
            await ask(fleet, "key-5", aside=True)
        fleet.start("berta")
        await asyncio.sleep(120)
        await fleet.stop("berta")
        with pytest.raises(UserError, match="has no owner"):
            await ask(fleet, "key-5", aside=True)


async def test_an_owner_of_another_kind_is_not_asked_and_one_that_is_yet_to_begin_is() -> None:
    fleet = fleet_of(Failing(), PATIENT, await make.leases(make.lease(owner="net", at="0")))
    with pytest.raises(UserError, match="net, a processor of another kind"):
        await ask(fleet, "key-5")
    await fleet.container.replace(replace(await lease_in(fleet.container), cooling=True))
    with pytest.raises(Failure, match="net has not answered for 30 s"):
        await ask(fleet, "key-5")
