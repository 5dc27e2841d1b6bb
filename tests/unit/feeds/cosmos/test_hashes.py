"""Where ranges of Cosmos DB are cut by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.cosmos.hashes import even_parts
from changefeed.feeds.cosmos.topology import Place, Topology, part_between
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import FeedRange, RangeId
from cosmos_emulator.hashing import V2

WHOLE = FeedRange(id=RangeId("0"), low="", high="FF")
HASHES = st.text(min_size=1, max_size=40).map(V2.of)


def test_it_is_cut_where_cosmos_db_would_cut_it() -> None:
    whole = part_between(WHOLE, "", "FF")
    third = part_between(WHOLE, *V2.even_cuts(3))
    for x in (whole, third):
        (half, _) = even_parts(x, 2)
        assert half[1] == V2.middle(x.low, x.high)


@given(bounds=st.sets(HASHES, min_size=2, max_size=2), into=st.integers(2, 300))
def test_parts_cover_all_keys_once_and_have_as_many_hashes_each(
    bounds: set[str], into: int
) -> None:
    low, high = sorted(bounds)
    parts = list(even_parts(part_between(WHOLE, low, high), into))
    assert [parts[0][0], parts[-1][1], len(parts)] == [low, high, into]
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    sizes = [V2.width(*x) for x in parts]
    assert max(sizes) - min(sizes) <= 2
    assert min(sizes) > 0


@given(hashed=HASHES, into=st.integers(2, 64))
def test_each_key_is_read_by_one_part_as_the_feed_finds_it(hashed: str, into: int) -> None:
    topology = Topology(physical=[WHOLE])
    found = [topology.find(part_between(WHOLE, *x)) for x in even_parts(WHOLE, into)]
    places = [x for x in found if isinstance(x, Place)]
    assert len(places) == into
    assert sum(x.low <= hashed < x.high for x in places) == 1


def test_what_has_no_bounds_or_too_few_hashes_is_refused() -> None:
    with pytest.raises(FeedRefused, match="does not say which hashes"):
        even_parts(FeedRange(id=RangeId("0")), 2)
    one, two = "0" * 31 + "1", "0" * 31 + "2"
    with pytest.raises(FeedRefused, match="too few hashes"):
        even_parts(part_between(WHOLE, one, two), 2)
    with pytest.raises(FeedRefused, match="too few hashes"):
        even_parts(part_between(WHOLE, "7F", "FF"), 2)  # above all hashes
