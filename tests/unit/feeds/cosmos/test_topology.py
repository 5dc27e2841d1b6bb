"""Ranges of Cosmos DB that are split and merged: where each is read, and what follows it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.cosmos.topology import Place, Topology, part_between
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId


def made(name: str, low: str, high: str, *parents: str) -> FeedRange:
    return FeedRange(
        id=RangeId(name),
        low=low,
        high=high,
        parents=tuple(RangeId(x) for x in parents),
        generation=(len(parents), 0),
    )


WHOLE = made("0", "", "FF")
LOW, HIGH = made("1", "", "20", "0"), made("2", "20", "FF", "0")
MERGED = made("3", "", "FF", "0", "1", "2")


def parts(found: Place | tuple[FeedRange, ...]) -> tuple[FeedRange, ...]:
    assert not isinstance(found, Place)
    return found


def ids(found: Place | tuple[FeedRange, ...]) -> list[str]:
    return [x.id for x in parts(found)]


def test_halves_of_a_merged_range_are_read_on_within_their_own_bounds() -> None:
    topology = Topology(physical=[MERGED])
    low, high = (part for x in (LOW, HIGH) for part in parts(topology.find(x)))
    assert low == replace(made("-20", "", "20", "1"), generation=(3, 1))
    assert high == replace(made("20-FF", "20", "FF", "2"), generation=(3, 1))
    assert topology.find(low) == Place(physical=RangeId("3"), low="", high="20", original=False)


def test_what_halves_of_a_merged_range_have_alike_names_no_change_in_both() -> None:
    topology = Topology(physical=[MERGED])
    halves = [part for x in (LOW, HIGH) for part in parts(topology.find(x))]
    assert [topology.name_of_changes(x) for x in halves] == ["-20", "20-FF"]


def test_changes_are_named_after_the_physical_range_as_long_as_it_is_there() -> None:
    first, second = part_between(WHOLE, "", "10"), part_between(WHOLE, "30", "FF")
    whole, halves = Topology(physical=[WHOLE]), Topology(physical=[LOW, HIGH])
    assert {whole.name_of_changes(x) for x in (WHOLE, first, second)} == {"0"}
    # Each half counts its LSNs for itself from here on.
    assert [halves.name_of_changes(x) for x in (first, second)] == ["-10", "30-FF"]


def test_a_range_without_bounds_is_not_followed_through_a_merge() -> None:
    topology = Topology(physical=[MERGED])
    for name in "12":
        with pytest.raises(FeedRefused, match="merged with another while no host was looking"):
            topology.find(made(name, "", ""))
    assert ids(topology.find(LOW)) == ["-20"]
    assert ids(topology.find(HIGH)) == ["20-FF"]


def test_a_merge_is_seen_in_the_family_tree_also_after_further_splits() -> None:
    low, high = (
        made("4", "", "10", "0", "1", "2", "3"),
        made("5", "10", "FF", "0", "1", "2", "3"),
    )
    topology = Topology(physical=[low, high])
    for name in "0123":  # rather once too often than keys without a reader
        with pytest.raises(FeedRefused):
            topology.find(made(name, "", ""))
    assert ids(topology.find(made("2", "20", "FF"))) == ["20-FF"]


def test_a_list_with_a_gap_is_not_complete() -> None:
    assert Topology(physical=[LOW, HIGH]).complete
    assert not Topology(physical=[LOW]).complete
    assert not Topology(physical=[HIGH]).complete
    assert not Topology(physical=[]).complete


# A container whose ranges are split and merged at random, and a reader who looks now and then.

STEPS = st.lists(st.tuples(st.sampled_from("sml"), st.integers(0, 1000)), max_size=40)


class Container:
    """Cuts and joins ranges as Cosmos DB does; hashes are two digits here."""

    def __init__(self) -> None:
        self.ranges = [WHOLE]
        self._count = 0

    def split(self, choice: int) -> None:
        owned = self.ranges[choice % len(self.ranges)]
        low, high = int(owned.low or "0", 16), int(owned.high, 16)
        if high - low >= 2:
            cut = f"{low + 1 + choice % (high - low - 1):02X}"
            self._replace([owned], [(owned.low, cut), (cut, owned.high)])

    def merge(self, choice: int) -> None:
        if len(self.ranges) > 1:
            at = choice % (len(self.ranges) - 1)
            pair = self.ranges[at : at + 2]
            self._replace(pair, [(pair[0].low, pair[1].high)])

    def _replace(self, old: list[FeedRange], bounds: list[tuple[str, str]]) -> None:
        parents = dict.fromkeys(y for x in old for y in (*x.parents, x.id))
        for low, high in bounds:
            self._count += 1
            self.ranges.append(made(str(self._count), low, high, *parents))
        self.ranges = sorted((x for x in self.ranges if x not in old), key=lambda x: x.low)


def followed(topology: Topology, leases: list[FeedRange]) -> list[FeedRange]:
    """Replace leases of ended ranges by those of what follows, until all can be read."""
    found: list[FeedRange] = []
    for lease in leases:
        place = topology.find(lease)
        if isinstance(place, Place):
            found.append(lease)
            continue
        assert all(x.generation > lease.generation for x in place), "it grows along each key"
        found += followed(topology, list(place))
    return found


def covers_every_hash_once(leases: list[FeedRange]) -> bool:
    leases = sorted(leases, key=lambda x: x.low)
    return [*(x.low for x in leases), "FF"] == ["", *(x.high for x in leases)]


@given(STEPS)
def test_leases_that_are_followed_cover_every_hash_once_whatever_was_split_and_merged(
    steps: list[tuple[str, int]],
) -> None:
    container = Container()
    leases = list(container.ranges)
    for step, choice in [*steps, ("l", 0)]:
        if step != "l":
            (container.split if step == "s" else container.merge)(choice)
            continue
        topology = Topology.of(container.ranges)
        leases = followed(topology, leases)
        assert covers_every_hash_once(leases)
        for x in leases:
            place = topology.find(x)
            assert isinstance(place, Place)
            assert (place.low, place.high) == (x.low, x.high)
