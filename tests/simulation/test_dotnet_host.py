"""How a host of another kind balances: the share it takes, and whom it steals from."""

from datetime import UTC, datetime, timedelta

import pytest

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.lease import Lease
from tests.support import make
from tests.support.dotnet_processor import Document, new_lease, rewritten

from .checkers import Checker
from .dotnet_host import EXPIRATION, leases_to_take
from .progress import Violation
from .test_checkers import Numbers, call_of, watched

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def owned_by(*owners: str | None, age: float = 1.0) -> list[Document]:
    stamp = NOW - timedelta(seconds=age)
    return [
        rewritten(new_lease("p", str(n), "", "FF"), stamp, Owner=owner)
        for n, owner in enumerate(owners)
    ]


@pytest.mark.parametrize(
    ("owners", "taken"),
    [
        ((None, None, None), ["0", "1", "2"]),
        (("b", None, None), ["1", "2"]),
        (("b", "b", "b"), ["0"]),
        (("b", "c", "b", "c", "b"), ["0"]),
        (("b", "b", "me"), []),
        (("me", "b", "c"), []),
        (("me", "me", None), ["2"]),
        (("me", "me", "b", None), []),
    ],
)
def test_it_takes_its_share_and_steals_one_at_once(
    owners: tuple[str | None, ...], taken: list[str]
) -> None:
    found = leases_to_take(owned_by(*owners), "me", NOW)
    assert [x["LeaseToken"] for x in found] == taken


def test_it_takes_what_has_expired_by_its_own_clock() -> None:
    for age, taken in ((EXPIRATION - 1, 0), (EXPIRATION + 1, 1)):
        found = leases_to_take(owned_by("b", age=age) + owned_by("me"), "me", NOW)
        assert len(found) == taken


def test_it_may_steal_at_once_and_nothing_that_it_stores_may_pass_a_change_over() -> None:
    checker, taken, found = watched(2)
    checker.neighbours.add("n/1")
    stolen = taken.vacated()
    checker.stored(taken, stolen, "n/1")
    checker.began(call_of(taken), found[:1])  # until the former owner finds out
    checker.done_by_neighbour("n/1", found[:1])
    with pytest.raises(Violation, match="passed over change 2"):
        checker.stored(stolen, stolen.advanced_to(Continuation("2")), "n/1")


def test_it_may_not_be_given_a_change_before_an_earlier_one_of_its_key() -> None:
    checker = Checker(Numbers(), strict=True)
    for n in (1, 2):
        checker.appended("k", n)
    with pytest.raises(Violation, match="came before an earlier one"):
        checker.done_by_neighbour("n/1", [make.change(2, key="k", body=b"2")])


def test_what_it_goes_on_in_may_be_read_beside_the_range_that_has_not_ended() -> None:
    for writer in ("n/1", "b/1"):
        checker, taken, _ = watched(0)
        checker.neighbours.add("n/1")
        found = FeedRange(id=RangeId("r2"), low="4", high="8")
        half = Lease(range=found, continuation=taken.continuation, epoch=1)
        if writer == "n/1":
            checker.stored(None, half, writer)
        else:
            with pytest.raises(Violation, match="are read, with same keys"):
                checker.stored(None, half, writer)
