"""A row that takes records, whatever becomes of its objects, and however its clock goes."""

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from changefeed.feeds.feed import RangeId
from changefeed.log.format.block_format import Layout, lay_out
from changefeed.log.format.flush import (
    TABLE_EVERY,
    FlushHeader,
    StoredRequest,
    by_key,
    decode_header,
    ends_after,
    has_table,
    producers_after,
    producers_by_key,
)
from changefeed.log.format.pack import Key, Place
from changefeed.log.records import Record, encode_record
from changefeed.log.rows.open_row import OpenRow, WriterPlace

PLACE = WriterPlace(cluster="c", era=3, broker="b", incarnation="i", began_us=500)
KEYS: Sequence[Key] = [("orders", RangeId(f"e3.p0{n}.v00-ff")) for n in range(2)]

_Write = tuple[tuple[int, int], int, bool]
"""How many records of each partition; what the clock says; whether the object comes to be."""
writes = st.tuples(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 2000), st.booleans()
)


def columns_of(counts: Sequence[int], at_us: int) -> dict[Key, Layout]:
    record = encode_record(Record(key="k", body=b"{}"), at_us)
    return {
        key: lay_out([record] * count) for key, count in zip(KEYS, counts, strict=True) if count
    }


def of_two_tables() -> list[_Write]:
    """Return a row whose every tenth object is made twice, and whose clock runs backwards."""
    numbers = range(2 * TABLE_EVERY + 20)
    return [((n % 3, 1), 2000 - n, n % 10 != 4) for n in numbers]


@given(st.lists(writes, max_size=20), st.integers(0, 2000))
@example(of_two_tables(), 0)
def test_what_is_added_is_a_row_and_what_is_not_leaves_nothing(
    found: list[_Write], sealed_us: int
) -> None:
    clock = [0]
    row = OpenRow(PLACE, lambda: clock[0])
    headers: list[FlushHeader] = []
    latest_us, lasts = PLACE.began_us, dict.fromkeys(KEYS, 0)
    for counts, now_us, comes_to_be in [*found, ((0, 0), sealed_us, True)]:
        clock[0] = now_us
        number, is_seal = len(headers) + 1, counts == (0, 0)  # a seal has no records
        request = StoredRequest("orders", "p", 0, number, now_us)
        made = row.make(columns_of(counts, now_us), [request], seal=is_seal)
        header = decode_header(made.data, "c", Place(PLACE.era, PLACE.broker, number))
        latest_us = max(latest_us, now_us)
        assert header.written_us == latest_us
        sections = {x.key: (x.first, x.last) for x in header.sections}
        assert sections == {
            key: (lasts[key] + 1, lasts[key] + count)
            for key, count in zip(KEYS, counts, strict=True)
            if count
        }
        assert made.firsts == {key: first for key, (first, _) in sections.items()}
        assert (header.table is not None) == (is_seal or has_table(number))
        if header.table is not None:
            assert by_key(header.table) == ends_after(headers)
            assert producers_by_key(header.producers) == producers_after(headers)
        if comes_to_be:
            row.add(made)
            headers.append(header)
            lasts |= {key: last for key, (_, last) in sections.items()}
        assert row.ends == ends_after(headers)
        assert row.producers == producers_after(headers)


def test_a_table_has_what_is_open_and_no_producer_that_was_forgotten() -> None:
    row = OpenRow(PLACE, lambda: 1000)
    row.open([KEYS[0]])
    request = StoredRequest("orders", "p", 0, 1, 0)
    row.add(row.make(columns_of((2, 0), 7), [request]))
    row.open(KEYS)  # of the first there are records by now
    row.forget(("orders", "p"))
    seal = decode_header(row.make({}, seal=True).data, "c", Place(3, "b", 2))
    assert [(x.key, x.last) for x in seal.table or ()] == [(KEYS[0], 2), (KEYS[1], 0)]
    assert seal.producers == ()


@given(found=st.lists(writes, min_size=1, max_size=20), newest_is_there=st.booleans())
def test_a_row_that_is_taken_over_goes_on_where_it_ended(
    found: list[_Write],
    *,
    newest_is_there: bool,
) -> None:
    row = OpenRow(PLACE, lambda: 1000)
    for counts, now_us, _ in found:
        row.add(row.make(columns_of(counts, now_us)))
    known_us = row.now_us() if newest_is_there or not row.ends else 0  # else from the ends
    last = row.next - 1
    later = OpenRow(PLACE, lambda: 0, last=last, ends=row.ends, written_us=known_us)
    columns = columns_of((1, 2), 7)
    assert later.make(columns) == row.make(columns)
    assert later.make({}, seal=True) == row.make({}, seal=True)
