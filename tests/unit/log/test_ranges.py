"""Which partitions there are, and who gets which: computed, and the same for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.log.catalog.catalog import Cuts
from changefeed.log.catalog.ranges import EraShape, Ranges

WHOLE = ((0,),) * 12

shapes = st.lists(
    st.sets(st.integers(1, 255), max_size=4).map(lambda x: (0, *sorted(x))),
    min_size=1,
    max_size=8,
).map(tuple)


def opened(identity: str, cuts: Cuts, brokers: int) -> Ranges:
    names = tuple(f"b{n}" for n in range(1, brokers + 1))
    return Ranges(identity, len(cuts), [EraShape(era=1, brokers=names, cuts=cuts)])


@given(st.text("0123456789abcdef", min_size=32, max_size=32), shapes, st.integers(1, 9))
def test_partitions_are_divided_evenly_and_in_runs_and_have_each_key_once(
    identity: str, cuts: Cuts, brokers: int
) -> None:
    there = opened(identity, cuts, brokers).open
    owners = [x.broker for x in there]
    assert owners == sorted(owners)
    counts = [owners.count(f"b{n}") for n in range(1, brokers + 1)]
    assert max(counts) - min(counts) <= 1
    places = [(x.part, virtual) for x in there for virtual in range(x.low, x.high + 1)]
    assert places == [(part, virtual) for part in range(len(cuts)) for virtual in range(256)]


@pytest.mark.parametrize(
    ("identity", "brokers", "runs"),
    [
        ("0" * 32, 2, [6, 6]),
        ("0" * 32, 5, [2, 3, 3, 2, 2]),
        ("c" * 32, 5, [3, 3, 2, 2, 2]),
        ("0123456789abcdef0123456789abcdef", 7, [2, 2, 2, 2, 1, 1, 2]),
    ],
)
def test_who_gets_which_partitions_is_frozen(
    identity: str, brokers: int, runs: list[int]
) -> None:
    owners = [x.broker for x in opened(identity, WHOLE, brokers).open]
    assert [owners.count(f"b{n}") for n in range(1, brokers + 1)] == runs


def test_an_era_has_the_shape_of_the_one_before_unless_it_says_another() -> None:
    ranges = Ranges(
        "c" * 32,
        2,
        [
            EraShape(era=3, brokers=("a",)),
            EraShape(era=4, brokers=("a", "b"), cuts=((0, 128), (0,))),
            EraShape(era=5, brokers=("b",)),
        ],
    )
    ids = [x.id for x in ranges.all()]
    assert ids[:2] == ["e3.p01.v00-ff", "e3.p02.v00-ff"]
    assert ids[2:5] == ["e4.p01.v00-7f", "e4.p01.v80-ff", "e4.p02.v00-ff"]
    assert [x.replace("e5", "e4") for x in ids[5:]] == ids[2:5]
    first, upper = ranges.partition(ids[0]), ranges.partition(ids[3])
    assert [x.id for x in ranges.children(first)] == ids[2:4]
    assert ranges.as_range(upper).parents == (ids[0],)
    assert (ranges.as_range(upper).low, ranges.as_range(upper).high) == ("p01.v080", "p01.v100")
    assert ranges.home(first).id == "e5.p01.v00-7f"
