"""What is seen to have moved, between two looks at the leases of a fleet."""

from typing import Any

import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.moves import Holding, LeaseMove, holdings, moves_between
from changefeed.leases.lease import HostName, Lease

A = Holding("anna")
ASKED = Holding("anna", "ben")


def seen(before: Holding | None, after: Holding) -> list[dict[str, Any]]:
    old = {} if before is None else {"r": before}
    moves = moves_between(old, {"r": after}, at=7.0)
    assert all((x.at, x.range) == (7.0, "r") for x in moves)
    known = ("kind", "of", "to", "note")
    return [{k: v for k in known if (v := getattr(x, k)) is not None} for x in moves]


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (A, A, []),
        (None, Holding(), [{"kind": "created"}]),
        (None, A, [{"kind": "created"}, {"kind": "acquired", "to": "anna"}]),
        (Holding(), A, [{"kind": "acquired", "to": "anna"}]),
        (A, Holding(), [{"kind": "released", "of": "anna"}]),
        (A, Holding("ben"), [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (A, ASKED, [{"kind": "requested", "of": "anna", "to": "ben"}]),
        (ASKED, Holding("ben"), [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (ASKED, A, []),
        (A, Holding("anna", paused="disk"), [{"kind": "paused", "note": "disk"}]),
        (Holding(paused="disk"), Holding(), [{"kind": "resumed"}]),
        (A, Holding(ended=True), [{"kind": "ended", "of": "anna"}]),
    ],
)
def test_each_change_of_a_lease_is_one_move(
    before: Holding | None, after: Holding, moves: list[dict[str, Any]]
) -> None:
    assert seen(before, after) == moves


def test_a_lease_that_is_gone_is_no_move() -> None:
    assert moves_between({"r": A}, {}, at=0.0) == []


def test_leases_are_looked_at_by_what_people_see_of_them() -> None:
    lease = Lease(range=FeedRange(id=RangeId("r")), owner=HostName("anna"), paused="disk")
    assert holdings([lease]) == {"r": Holding("anna", None, "disk", False)}
    same = lease.renewed()
    assert moves_between(holdings([lease]), holdings([same]), at=0.0) == []
    assert moves_between(holdings([lease]), holdings([lease.finished()]), at=1.0) == [
        LeaseMove(at=1.0, range="r", kind="ended", of="anna")
    ]
