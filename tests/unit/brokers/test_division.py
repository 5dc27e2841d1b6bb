"""Who gets which partitions."""

from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.brokers.catalog import Collection
from changefeed.feeds.brokers.division import new_partitions


def collection(name: str, *cuts: tuple[int, ...]) -> Collection:
    return Collection(name=name, identity=name, parts=len(cuts), created_us=0, cuts=cuts)


cuts = st.lists(
    st.sets(st.integers(1, 255), max_size=4).map(lambda x: (0, *sorted(x))),
    min_size=1,
    max_size=8,
)


@given(st.lists(cuts, min_size=1, max_size=4), st.integers(1, 9))
def test_each_collection_and_all_together_are_divided_evenly_and_in_runs(
    shapes: list[list[tuple[int, ...]]], brokers: int
) -> None:
    names = [f"b{n}" for n in range(brokers)]
    collections = [collection(f"c{n}", *x) for n, x in enumerate(shapes)]
    opened = new_partitions(1, collections, names)
    totals = dict.fromkeys(names, 0)
    for one in opened.values():
        owners = [x.broker for x in one]
        assert owners == sorted(owners)
        counts = [owners.count(x) for x in names]
        assert max(counts) - min(counts) <= 1
        for name, count in zip(names, counts, strict=True):
            totals[name] += count
        assert [(x.part, x.low) for x in one] == sorted((x.part, x.low) for x in one)
    assert max(totals.values()) - min(totals.values()) <= 1


def test_a_new_collection_changes_nothing_of_the_others() -> None:
    first, second = collection("a", *[(0,)] * 5), collection("b", *[(0,)] * 5)
    names = ["x", "y", "z"]
    assert (
        new_partitions(1, [first, second], names)["a"] == new_partitions(1, [first], names)["a"]
    )
