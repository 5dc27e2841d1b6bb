"""The proof of the flights: it holds for what is right, and each claim fails when broken."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.leases.lease import HostName, Lease
from samples.flights.data import Row
from samples.flights.deliveries import Delivery, Turn
from samples.flights.observer import Carrier, Figures
from samples.flights.proof import Proof, in_words, prove
from samples.flights.straight import Expected, straight_from
from tests.support import make

CLAIMS = ("delivered", "order", "figures", "stopped")


def row(carrier: str, dep_delay: str, arr_time: str, arr_delay: str) -> Row:
    return {
        "carrier": carrier,
        "flight": "1545",
        "origin": "EWR",
        "dest": "IAH",
        "dep_time": "517" if dep_delay else "",
        "dep_delay": dep_delay,
        "arr_time": arr_time,
        "arr_delay": arr_delay,
    }


ROWS = [
    (1, row("UA", "15", "830", "11")),
    (2, row("UA", "-2", "900", "")),
    (3, row("DL", *[""] * 3)),
]
EXPECTED = straight_from(ROWS)
FIGURES = {
    RangeId("p0"): Figures(
        up_to=6,
        carriers={
            "UA": Carrier(
                scheduled=2,
                departed=2,
                late=1,
                departure_delay=13,
                arrived=2,
                timed_arrivals=1,
                arrival_delay=11,
            )
        },
    ),
    RangeId("p1"): Figures(up_to=2, carriers={"DL": Carrier(scheduled=1, cancelled=1)}),
}
BUSY = [  # the aircraft N1 flew twice
    Delivery(1, "1", "scheduled", "N1", 10),
    Delivery(2, "2", "scheduled", "N1", 20, True),
    Delivery(3, "1", "departed", "N1", 30),
    Delivery(4, "1", "arrived", "N1", 40, True),
    Delivery(5, "2", "departed", "N1", 50),
    Delivery(6, "2", "arrived", "N1", 60, True),
]
QUIET = [Delivery(1, "3", "scheduled", "N2", 10), Delivery(2, "3", "cancelled", "N2", 20, True)]


def turn(
    deliveries: Sequence[Delivery], *, epoch: int = 1, host: str = "a", at: str = "p0"
) -> Turn:
    return Turn(range=at, epoch=epoch, host=host, deliveries=deliveries)


TURNS = [turn(BUSY[:4]), turn(BUSY[4:], epoch=2, host="b"), turn(QUIET, at="p1")]
LEASES = [(make.lease(x), 0) for x in ("p0", "p1")]


def proof(
    *,
    expected: Expected = EXPECTED,
    turns: Sequence[Turn] = TURNS,
    figures: Mapping[RangeId, Figures] = FIGURES,
    leases: Sequence[tuple[Lease, int]] = LEASES,
) -> Proof:
    return prove(expected, turns, figures, leases)


def broken(found: Proof) -> dict[str, Sequence[str]]:
    """Name the claims that do not hold, and why."""
    assert found.holds is all(x.holds for x in found.claims)
    return {
        name: x.problems for name, x in zip(CLAIMS, found.claims, strict=True) if not x.holds
    }


def test_it_holds_for_a_run_in_which_all_was_right() -> None:
    found = proof()
    assert broken(found) == {}
    assert (found.deliveries, found.duplicates) == (8, 0)
    assert EXPECTED.changes == 8


def test_what_a_killed_host_had_had_may_come_again_from_a_checkpoint_on() -> None:
    found = proof(turns=[turn(BUSY[:4]), turn(BUSY[2:], epoch=2, host="b"), TURNS[2]])
    assert broken(found) == {}
    assert (found.deliveries, found.duplicates, found.repeated) == (10, 2, {"a": 2})
    assert in_words(found).endswith("10 deliveries, 2 of them duplicates (2 that a had had).")


def test_a_lost_change_breaks_the_delivery_and_the_order() -> None:
    found = proof(turns=[turn([*BUSY[:2], *BUSY[3:]]), TURNS[2]])
    assert broken(found) == {
        "delivered": ["that flight 1 departed was never delivered"],
        "order": ["p0: 4 came after 2, to one owner"],
    }


def test_a_key_in_two_ranges_breaks_the_order() -> None:
    stray = [msgspec.structs.replace(x, key="N1") for x in QUIET]
    problems = broken(proof(turns=[turn(BUSY), turn(stray, at="p1")]))
    assert "key N1 came in p0 and in p1" in problems["order"]


def test_a_repetition_from_within_a_batch_breaks_the_order() -> None:
    turns = [turn(BUSY), turn(BUSY[3:], epoch=2, host="b"), TURNS[2]]
    assert broken(proof(turns=turns)) == {
        "order": ["p0: an owner began at 4, behind no batch that was done"]
    }


@pytest.mark.parametrize("name", Carrier.__struct_fields__)
def test_a_wrong_figure_is_noticed_whichever_it_is(name: str) -> None:
    carriers = dict(FIGURES[RangeId("p1")].carriers)
    right = getattr(carriers["DL"], name)
    carriers["DL"] = msgspec.structs.replace(carriers["DL"], **{name: right + 1})
    figures = {**FIGURES, RangeId("p1"): Figures(up_to=2, carriers=carriers)}
    assert broken(proof(figures=figures)) == {
        "figures": [f"carrier DL: {name} is {right + 1} instead of {right}"]
    }


def test_a_lease_that_was_not_given_back_is_noticed() -> None:
    owned = replace(LEASES[0][0], owner=HostName("a"))
    assert broken(proof(leases=[(owned, 0), (LEASES[1][0], 3)])) == {
        "stopped": ["p0 is still owned by a", "3 changes of p1 lie after its checkpoint"]
    }
    assert broken(proof(leases=[])) == {"stopped": ["there are no leases"]}
