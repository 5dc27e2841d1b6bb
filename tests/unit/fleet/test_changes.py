"""What has changed between two looks at a fleet."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from changefeed.fleet.changes import difference, moves_between
from changefeed.fleet.status import FleetStatus, LeaseMove, RangeStatus, TrendPoint
from tests.support import make

A = make.range_seen("r", "anna")
ASKED = make.range_seen("r", "anna", next_owner="ben")
BEN = make.range_seen("r", "ben")
FREE = make.range_seen("r")
NO_LEASE = make.range_seen("r", leased=False)


def paused(by: str | None = None) -> RangeStatus:
    return make.range_seen("r", by, state="paused", note="disk")


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        (A, A, []),
        (None, FREE, [{"kind": "created"}]),
        (NO_LEASE, FREE, [{"kind": "created"}]),
        (FREE, None, []),
        (None, A, [{"kind": "created"}, {"kind": "acquired", "to": "anna"}]),
        (FREE, A, [{"kind": "acquired", "to": "anna"}]),
        (A, FREE, [{"kind": "released", "of": "anna"}]),
        (A, BEN, [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (A, ASKED, [{"kind": "requested", "of": "anna", "to": "ben"}]),
        (ASKED, BEN, [{"kind": "moved", "of": "anna", "to": "ben"}]),
        (ASKED, A, []),
        (A, paused("anna"), [{"kind": "paused", "note": "disk"}]),
        (paused(), FREE, [{"kind": "resumed"}]),
        (A, make.range_seen("r", state="ended"), [{"kind": "ended", "of": "anna"}]),
        (A, replace(A, state="failing", note="ValueError"), []),
    ],
)
def test_each_change_of_a_lease_is_one_move(
    before: RangeStatus | None, after: RangeStatus | None, moves: list[Mapping[str, str]]
) -> None:
    old, new = ([] if x is None else [x] for x in (before, after))
    expected = [LeaseMove(at=7.0, range="r", **x) for x in moves]  # type: ignore[arg-type]
    assert moves_between(old, new, at=7.0) == expected


BOTH = [make.range_seen("a", "anna", lag=1), make.range_seen("b", "anna", lag=1)]
BEFORE = make.fleet_seen(BOTH, hosts=[make.host_seen("anna")])


def seen(**known: object) -> FleetStatus:
    return replace(BEFORE, at=3.0, **known)


def test_a_range_that_is_new_is_sent_whole_and_one_that_is_gone_by_name() -> None:
    new = make.range_seen("c")
    sent = difference(BEFORE, seen(ranges=[BOTH[0], new]))
    assert (sent["changed"], sent["gone"]) == ([new], ["b"])


def test_moves_points_and_hosts_are_sent_once() -> None:
    moves = [LeaseMove(at=float(n), range="a", kind="resumed") for n in range(3)]
    points = [TrendPoint(at=x, rate=2.0, lag=3) for x in (1.0, 11.0)]
    before = replace(BEFORE, moves=moves[1:], moved=2, hour=points[:1])
    sent = difference(before, replace(before, moves=moves, moved=3, hour=points, hosts=[]))
    assert (sent["moves"], sent["hour"], sent["hosts"]) == ([moves[0]], [points[1]], [])
    assert "past" not in sent
