"""One lease in the hands of one host: its fence, its unclear writes, its one lock."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Position
from changefeed.host.owned_lease import OwnedLease
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.deaths import NO_DEATHS
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import HostName, Incarnation, KeyRequest, Lease, WriteId
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.two_stores import TwoStoreLeases
from changefeed.runtime.errors import StoreUnavailable
from changefeed.testing.proxies import Around, FailingCall, proxied
from tests.support import make
from tests.support.apart import MemoryCheckpoints, MemoryOwnership
from tests.support.calls import Calls
from tests.support.looking import lease_in, now

A, B = HostName("a"), HostName("b")
A1, A2, B1 = Incarnation("a-1"), Incarnation("a-2"), Incarnation("b-1")
C5, C9 = Position("5"), Position("9")
LOST = StoreUnavailable("lost on its way")


async def held(around: Around | None = None) -> tuple[MemoryLeases, OwnedLease]:
    """Return a container with one lease, and that lease in the hands of host a."""
    leases = await make.leases(make.lease(at="0"))
    return leases, await make.owned(proxied(leases, around) if around else leases)


# The fence


async def test_the_fence_counts_from_the_moment_a_sign_of_life_was_sent() -> None:
    _, owned = await held(Calls(lasting={"acquire": 4, "replace": 5}))
    assert (now(), owned.time_left) == (4, 25)
    await asyncio.sleep(10)
    await owned.renew()
    assert (now(), owned.time_left) == (19, 24)


async def test_what_is_no_renewal_with_an_answer_moves_no_fence() -> None:
    cut = FailingCall(LOST, at=1, after=True, only=lambda x: x == "replace")
    _, owned = await held(cut)
    await asyncio.sleep(10)
    await owned.checkpoint(Checkpoint(C5))
    with pytest.raises(StoreUnavailable):
        await owned.renew()
    assert owned.time_left == 19


async def test_care_ends_once_the_lease_says_so() -> None:
    _, owned = await held()
    owned.deaths = NO_DEATHS.died(read=7).died(read=7)
    await owned.tell_deaths()
    careful = owned.care
    owned.deaths = NO_DEATHS
    assert owned.care == careful > 0
    await owned.tell_deaths()
    assert owned.care == 0


async def test_behind_the_fence_nothing_is_delivered_and_nothing_checkpointed() -> None:
    leases, owned = await held()
    await asyncio.sleep(28.9)
    assert owned.may_act
    await asyncio.sleep(0.2)
    assert not owned.may_act
    at = Checkpoint(C5)
    for write in (owned.checkpoint(at), owned.give_up(Lease.released, at)):
        with pytest.raises(LeaseLost, match="renewed in time"):
            await write
    stored = await lease_in(leases)
    assert (stored.owner, stored.position) == (A, "0")  # it was not even tried


async def test_behind_the_fence_a_lease_that_is_still_ours_may_be_released() -> None:
    leases, owned = await held()
    await asyncio.sleep(100)
    await owned.checkpoint(owned.stored)  # which writes nothing
    await owned.give_up(Lease.released, owned.stored)
    assert (await lease_in(leases)).owner is None


async def test_behind_the_fence_a_checkpoint_without_an_answer_is_not_repeated() -> None:
    leases, owned = await held(FailingCall(LOST, at=1, only=lambda x: x == "checkpoint"))
    with pytest.raises(StoreUnavailable):
        await owned.checkpoint(Checkpoint(C5))
    await asyncio.sleep(100)
    await owned.renew()
    assert (await lease_in(leases)).position == "0"


# Unclear writes


@pytest.mark.parametrize("lost", ["before its effect", "after its effect"])
async def test_a_renewal_whose_answer_was_lost_is_looked_up_and_renewed_again(
    lost: str,
) -> None:
    after = lost == "after its effect"
    cut = FailingCall(LOST, at=1, after=after, only=lambda x: x == "replace")
    leases, owned = await held(cut)
    before = (await lease_in(leases)).renewals
    with pytest.raises(StoreUnavailable):
        await owned.renew()
    await owned.renew()
    assert (await lease_in(leases)).renewals == before + 1 + after
    assert not owned.lost


@pytest.mark.parametrize("then", [C9, Position("0")])
@pytest.mark.parametrize("lost", ["before its effect", "after its effect"])
async def test_a_checkpoint_whose_answer_was_lost_is_followed_by_the_next(
    lost: str, then: Position
) -> None:
    cut = FailingCall(
        LOST, at=1, after=lost == "after its effect", only=lambda x: x == "checkpoint"
    )
    leases, owned = await held(cut)
    with pytest.raises(StoreUnavailable):
        await owned.checkpoint(Checkpoint(C5))
    await owned.checkpoint(Checkpoint(then))
    assert (owned.stored.text, (await lease_in(leases)).position) == (then, then)


async def test_what_a_write_without_an_answer_may_have_taken_away_is_noted_again() -> None:
    cut = FailingCall(LOST, at=2, only=lambda x: x == "replace", after=True)
    leases, owned = await held(cut)
    owned.deaths = noted = NO_DEATHS.died(read=7).died(read=7).noting(3)
    await owned.tell_deaths()
    owned.deaths = noted.returned(0)
    with pytest.raises(StoreUnavailable):
        await owned.tell_deaths()
    owned.deaths = noted
    await owned.tell_deaths()
    assert (await lease_in(leases)).deaths.noted == 3


async def test_a_release_whose_answer_was_lost_is_found_and_may_be_done_again() -> None:
    cut = FailingCall(LOST, at=1, after=True, only=lambda x: x == "replace")
    leases, owned = await held(cut)
    with pytest.raises(StoreUnavailable):
        await owned.give_up(Lease.released, Checkpoint(C5))
    await owned.give_up(Lease.released, Checkpoint(C5))
    assert ((await lease_in(leases)).owner, (await lease_in(leases)).position) == (None, C5)


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param(lambda x: replace(x.taken_by(B, B1), write_id=WriteId("b's")), id="ours"),
        pytest.param(lambda x: replace(x, owner=B), id="another kind, that keeps our write_id"),
    ],
)
async def test_a_release_whose_answer_was_lost_is_not_done_again_to_the_next_owner(
    taken: Callable[[Lease], Lease],
) -> None:
    cut = FailingCall(LOST, at=1, after=True, only=lambda x: x == "replace")
    leases, owned = await held(cut)
    with pytest.raises(StoreUnavailable):
        await owned.give_up(Lease.released, Checkpoint(C5))
    assert (await leases.acquire(taken(await lease_in(leases)))).position == C5
    with pytest.raises(LeaseLost):
        await owned.give_up(Lease.released, Checkpoint(C5))
    assert (await lease_in(leases)).owner == B


# Whose it is


@pytest.mark.parametrize(
    "rewritten",
    [
        pytest.param(lambda x: x.taken_by(B, B1), id="another host"),
        pytest.param(lambda x: x.taken_by(A, A1), id="another epoch"),
        pytest.param(lambda x: replace(x, incarnation=A2), id="another incarnation"),
        pytest.param(lambda x: replace(x, owner=B), id="a host that knows no epochs"),
        pytest.param(Lease.released, id="nobody"),
    ],
)
async def test_what_others_have_taken_is_lost_and_left_as_it_is(
    rewritten: Callable[[Lease], Lease],
) -> None:
    leases, owned = await held()
    taken = await leases.replace(rewritten(await lease_in(leases)))
    checkpoint, release = Checkpoint(C5), owned.give_up(Lease.released, owned.stored)
    for write in (owned.renew(), owned.checkpoint(checkpoint), release):
        with pytest.raises(LeaseLost):
            await write
    assert owned.lost
    assert await lease_in(leases) == taken


async def test_a_request_found_on_the_way_is_noticed_and_stands() -> None:
    leases, owned = await held()
    noticed = list[HostName | None]()
    owned.noticed = lambda lease: noticed.append(lease.next_owner)
    await owned.renew()
    assert noticed == []
    await leases.replace((await lease_in(leases)).requested_by(B))
    await owned.renew()
    assert noticed[0] == B
    assert owned.lease.next_owner == B
    assert (await lease_in(leases)).next_owner == B


async def test_the_last_write_sees_a_request_that_was_withdrawn_meanwhile() -> None:
    leases, owned = await held()
    await leases.replace((await lease_in(leases)).requested_by(B))
    await owned.renew()
    await leases.replace((await lease_in(leases)).requested_by(None))

    def passed_on(lease: Lease) -> Lease:
        return lease.released() if lease.next_owner is None else lease.handed_over()

    await owned.give_up(passed_on, Checkpoint(C5))
    last = await lease_in(leases)
    assert (last.owner, last.position) == (None, C5)


# One writer


async def test_writes_take_turns_so_that_none_takes_another_for_a_thief() -> None:
    calls = list[str]()
    under_way = 0

    async def around(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal under_way
        calls.append(name)
        under_way += 1
        assert under_way == 1, f"{calls} at once"
        await asyncio.sleep(1)
        answer = await call()
        under_way -= 1
        return answer

    leases, owned = await held(around)
    calls.clear()
    await asyncio.gather(
        owned.renew(),
        owned.checkpoint(Checkpoint(C5)),
        owned.renew(),
        owned.checkpoint(Checkpoint(C9)),
    )
    assert calls == ["replace", "checkpoint", "replace", "checkpoint"]
    stored = await lease_in(leases)
    assert (stored.position, stored.renewals) == (C9, 3)  # a checkpoint is no sign of life
    asyncio.get_running_loop().call_soon(setattr, owned, "deaths", NO_DEATHS.died(read=7))
    await asyncio.gather(owned.renew(), owned.checkpoint(Checkpoint(C5)))
    assert calls[4:] == ["replace", "replace"], "the second had deaths to tell, when it came"


async def test_a_lease_that_others_never_stop_writing_counts_as_unavailable() -> None:
    leases, owned = await held()

    async def asked_again_and_again(name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name == "replace":
            await leases.replace((await lease_in(leases)).requested_by(B))
        return await call()

    owned._container = proxied(leases, asked_again_and_again)
    with pytest.raises(StoreUnavailable, match="5 times in a row"):
        await owned.renew()
    assert owned.may_act


async def test_a_lease_is_failing_from_two_failed_writes_to_the_next_that_succeeds() -> None:
    calls = Calls()
    _, owned = await held(calls)
    for error, failing in ((LOST, False), (LOST, True), (None, False), (LOST, False)):
        calls.failing = {"replace": error} if error else {}
        with pytest.raises(StoreUnavailable) if error else nullcontext():
            await owned.renew()
        assert owned.failing is failing


# Requests


async def test_the_answer_to_one_person_leaves_what_another_has_asked_meanwhile() -> None:
    leases, owned = await held()
    first, second = (KeyRequest(id=x, key="k", aside=False) for x in "12")
    await leases.replace(replace(await lease_in(leases), key_request=second))
    await owned.answer(first, msgspec.structs.replace(first, answer="taken"))
    assert (await lease_in(leases)).key_request == second
    answered = msgspec.structs.replace(second, answer="not waiting")
    await owned.answer(second, answered)
    assert (await lease_in(leases)).key_request == answered


# Deleted under its owner


async def deleted(leases: MemoryLeases | MemoryOwnership) -> None:
    (stored,) = await leases.list()
    await leases.delete(stored)


@pytest.mark.parametrize("made_by", ["its owner", "its owner, unanswered", "others"])
async def test_a_lease_that_was_deleted_goes_on_with_its_owner_where_that_was(
    made_by: str,
) -> None:
    leases, owned = await held(FailingCall(LOST, at=2, only=lambda x: x == "checkpoint"))
    unclear = made_by == "its owner, unanswered"
    cut = FailingCall(LOST, at=1, only=lambda x: x == "create" and unclear, after=True)
    owned._container = proxied(owned._container, cut)
    await owned.checkpoint(Checkpoint.of_text("7"))
    with pytest.raises(StoreUnavailable):
        await owned.checkpoint(Checkpoint.of_text("8"))
    await deleted(leases)
    if made_by == "others":
        await leases.create(make.lease(at="0"))
    with pytest.raises(StoreUnavailable) if unclear else nullcontext():
        await owned.renew()
    await owned.renew()
    stored = await lease_in(leases)
    assert (stored.owner, stored.position, stored.epoch) == ("a", "8", 2)


@pytest.mark.parametrize("child", ["is read", "has ended"])
async def test_an_owner_that_slept_through_the_end_of_its_range_creates_nothing(
    child: str,
) -> None:
    whole = make.feed_range("r0", "00", "80")
    later = make.feed_range("r1", "00", "80", generation=(1, 0))
    leases = await make.leases(make.lease(whole, at=C5))
    owned = await make.owned(leases)
    found = await leases.create(make.lease(later, at=C5))
    if child == "has ended":
        await leases.replace(make.closed(await leases.acquire(found.taken_by(B, B1))))
    await leases.delete(await lease_in(leases, "r0"))
    with pytest.raises(LeaseLost):
        await owned.renew()
    assert await leases.read(whole.id) is None


async def test_a_lease_that_is_given_up_is_left_though_it_was_deleted() -> None:
    leases, owned = await held()
    await deleted(leases)
    await owned.give_up(Lease.released, Checkpoint.of_text("9"))
    left = await lease_in(leases)
    assert (left.owner, left.position) == (None, "9")


async def test_behind_its_fence_an_owner_creates_nothing() -> None:
    leases, owned = await held()
    await deleted(leases)
    await asyncio.sleep(29)
    with pytest.raises(LeaseLost, match="deleted"):
        await owned.renew()
    assert await leases.list() == []


@pytest.mark.parametrize("late", [False, True])
async def test_a_checkpoint_that_was_stored_without_an_answer_is_not_moved_back(
    *, late: bool
) -> None:
    ownership, checkpoints = MemoryOwnership(), MemoryCheckpoints()
    leases = TwoStoreLeases(ownership, checkpoints)
    await leases.create(make.lease(at="0"))
    cut = FailingCall(LOST, at=2, only=lambda x: x == "checkpoint", after=not late)
    refused = FailingCall(LOST, at=1, only=lambda x: x == "replace" and late)
    owned = await make.owned(proxied(proxied(leases, cut), refused))
    await owned.checkpoint(Checkpoint(C5))
    with pytest.raises(StoreUnavailable):
        await owned.checkpoint(Checkpoint(C9))
    if late:  # no renewal stands in its way
        with pytest.raises(StoreUnavailable):
            await owned.renew()
        seen = await checkpoints.read(owned.range_id)
        assert seen is not None
        await checkpoints.write(replace(seen, checkpoint=Checkpoint(C9)))
    await deleted(ownership)
    await owned.renew()
    assert (await lease_in(leases)).position == owned.stored.text == C9


async def test_an_owner_leaves_what_another_had_before_ownership_was_lost_again() -> None:
    ownership = MemoryOwnership()
    leases = TwoStoreLeases(ownership, MemoryCheckpoints())
    await leases.create(make.lease(at="0"))
    owned = await make.owned(leases)
    await deleted(ownership)
    found = await leases.create(make.lease(at="0"))
    of_b = await leases.acquire(found.evicted().taken_by(B, B1))
    await leases.checkpoint(of_b.advanced_to(C9))
    await deleted(ownership)
    with pytest.raises(LeaseLost, match="epoch 3"):
        await owned.renew()
    left = await lease_in(leases)
    assert (left.owner, left.epoch, left.position) == (None, 3, C9)
