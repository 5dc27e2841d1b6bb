"""The format of what brokers write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from changefeed.feeds.feed import RangeId
from changefeed.log.errors import Damaged
from changefeed.log.format.block_format import Layout
from changefeed.log.format.flush import (
    FlushHeader,
    PartitionEnd,
    ProducerState,
    StoredRequest,
    decode_header,
    encode_flush,
    producers_after,
)
from changefeed.log.format.pack import Place, Records, cut_columns, header_bytes

PLACE = Place(2, "broker-1", 7)
CLUSTER = "0123456789abcdef0123456789abcdef"


def header(number: int = 7, table: tuple[PartitionEnd, ...] | None = None) -> FlushHeader:
    return FlushHeader(
        cluster=CLUSTER,
        era=2,
        broker="broker-1",
        incarnation="i",
        number=number,
        written_us=5,
        table=table,
    )


def read_all(data: bytes) -> None:
    for section in decode_header(data, CLUSTER, PLACE).sections:
        cut_columns(data[header_bytes(data) + section.offset :], section)


RECORDS = Records(
    key=("orders", RangeId("e2.p01.v00-ff")),
    first=3,
    last=3,
    latest_us=9,
    stored=30,
    columns=Layout(b"\0", bytes(8), b"\1\0\0\0", b"a", b"", b"", bytes(4), b"", b"", b""),
)

layouts = st.builds(Layout, *[st.binary(max_size=40)] * 10)
sections = st.builds(
    Records,
    key=st.tuples(
        st.sampled_from(["orders", "users"]),
        st.sampled_from([RangeId("e2.p01.v00-ff"), RangeId("e2.p02.v00-7f")]),
    ),
    first=st.integers(1, 2**60),
    last=st.just(0),
    latest_us=st.integers(-(2**62), 2**62),
    stored=st.integers(0, 2**60),
    columns=layouts,
).map(lambda x: replace(x, last=x.first + len(x.columns.kinds) - 1))


@given(st.lists(sections, min_size=1, max_size=3), st.data())
def test_one_wrong_byte_is_seen_and_where_it_is_cut(
    new: list[Records], draw: st.DataObject
) -> None:
    data = bytearray(encode_flush(header(), new))
    place = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(Damaged):
        read_all(bytes(data[:place]))
    data[place] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(Damaged):
        read_all(bytes(data))


def test_the_bytes_of_a_flush_are_frozen() -> None:
    assert encode_flush(header(65, ()), [RECORDS]) == FROZEN


def asked(producer: str, number: int, check: int, generation: int = 0) -> StoredRequest:
    return StoredRequest("orders", producer, generation, number, check)


def test_a_row_has_the_last_five_requests_of_each_producer() -> None:
    headers = [
        replace(
            header(64 + n, () if n == 1 else None),
            requests=(asked("p", n, n), asked(f"q{n}", 1, 100 + n)),
        )
        for n in range(1, 9)
    ]
    found = producers_after(headers)
    assert found["orders", "p"] == ProducerState("orders", "p", 0, 8, 5, (4, 5, 6, 7, 8))
    assert found["orders", "q3"] == ProducerState("orders", "q3", 0, 1, 5, (103,))
    table = replace(header(129, ()), producers=tuple(found.values()))
    assert producers_after([decode_header(encode_flush(table), CLUSTER, table.place)]) == found


def test_a_generation_remembers_nothing_of_the_one_before() -> None:
    requests = (asked("p", 1, 7), asked("p", 2, 8), asked("p", 1, 9, generation=1))
    found = producers_after([replace(header(65, ()), requests=requests)])
    assert found["orders", "p"] == ProducerState("orders", "p", 1, 1, 5, (9,))


FROZEN = (
    b"CFWAL1\r\na\x00\x00\x00\xaf\x98n\xfa\x9b\xd9 0123456789abcdef01234"
    b"56789abcdef\x02\xa8broker-1\xa1iA\x05\xc2\x90\x90\x90\x91\x99\xa6orders\xade"
    b"2.p01.v00-ff\x03\x01\t\x1e\x00\x9a\x01\x08\x04\x01\x00\x00\x04\x00\x00\x00\xce\xd42\x85\xf3\x00\x00\x00\x00\x00\x00\x00"
    b"\x00\x00\x01\x00\x00\x00a\x00\x00\x00\x00"
)
