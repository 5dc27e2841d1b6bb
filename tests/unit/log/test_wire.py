"""Bodies between clients and brokers: what goes in comes out, and nothing else does."""

from random import Random

import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.format.block_format import Layout, lay_out
from changefeed.log.protocol.messages import AppendRequest, Batch, Block, ReadResult
from changefeed.log.protocol.wire import (
    WireDamaged,
    framed_append,
    framed_read,
    parsed_append,
    parsed_read,
)
from changefeed.log.records import Record, encode_record
from tests.support.brokers import request


def columns(count: int) -> Layout:
    records = [
        Record(key=f"k{n}", body=b"%d" % n, id=None if n % 2 else "i", previous=b"1")
        for n in range(count)
    ]
    return lay_out([encode_record(x, 7) for x in records])


def asked() -> AppendRequest:
    batches = [
        Batch(partition=RangeId(f"e1.p0{n}.v00-ff"), count=n, columns=columns(n))
        for n in (1, 5)
    ]
    return request(*batches, number=3, generation=2)


def test_a_request_comes_out_as_it_went_in() -> None:
    assert parsed_append(b"".join(framed_append(asked()))) == asked()


def test_what_was_read_comes_out_as_it_went_in() -> None:
    found = ReadResult(
        blocks=[Block(first=4, count=3, columns=columns(3))],
        last=6,
        ended=True,
        children=(FeedRange(id=RangeId("e2.p01.v00-ff"), parents=(RangeId("e1"),)),),
    )
    assert parsed_read(b"".join(framed_read(found))) == found
    nothing = ReadResult(blocks=[], last=0)
    assert parsed_read(b"".join(framed_read(nothing))) == nothing


@pytest.mark.parametrize("seed", range(200))
def test_a_body_that_was_changed_or_cut_is_refused_or_is_the_same(seed: int) -> None:
    random = Random(seed)
    body = bytearray(b"".join(framed_append(asked())))
    match seed % 3:
        case 0:
            del body[random.randrange(len(body)) :]
        case 1:
            body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        case _:
            body += random.randbytes(random.randint(1, 9))
    try:
        found = parsed_append(bytes(body))
    except WireDamaged:
        return
    # The head has no checksum: what it says is checked by the broker.
    assert [x.columns for x in found.batches] == [x.columns for x in asked().batches]


@pytest.mark.parametrize(
    "body",
    [b"", b"\x00", b"\xff\xff\xff\xff", b"\x01\x00\x00\x00\xc1", b"{}", b"\x00\x00\x00\x00"],
)
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(WireDamaged):
        parsed_append(body)
