"""Bodies between clients and brokers: what goes in comes out, and nothing else does."""

import tracemalloc
from random import Random

import msgspec
import pytest

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.log.decoding import Undecodable
from changefeed.log.format.block_format import Layout, lay_out
from changefeed.log.protocol.messages import AppendRequest, Batch, Block, ReadResult
from changefeed.log.protocol.wire import decode_append, decode_read, encode_append, encode_read
from changefeed.log.records import Record, encode_record
from tests.support.brokers import request


def columns(count: int) -> Layout:
    records = [
        Record(key=f"k{n}", body=b"%d" % n, id=None if n % 2 else "i", previous=b"1")
        for n in range(count)
    ]
    return lay_out([encode_record(x, 7) for x in records]) if records else Layout(*10 * [b""])


def asked() -> AppendRequest:
    batches = [
        Batch(partition=RangeId(f"e1.p0{n}.v00-ff"), count=n, columns=columns(n))
        for n in (1, 5)
    ]
    return request(*batches, number=3, generation=2)


def test_a_request_comes_out_as_it_went_in() -> None:
    assert decode_append(encode_append(asked())) == asked()


def test_what_was_read_comes_out_as_it_went_in() -> None:
    found = ReadResult(
        blocks=[Block(first=4, count=3, columns=columns(3))],
        last=6,
        ended=True,
        children=(FeedRange(id=RangeId("e2.p01.v00-ff"), parents=(RangeId("e1"),)),),
    )
    assert decode_read(encode_read(found)) == found
    nothing = ReadResult(blocks=[], last=0)
    assert decode_read(encode_read(nothing)) == nothing


@pytest.mark.parametrize("seed", range(200))
def test_a_body_that_was_changed_or_cut_is_refused_or_is_the_same(seed: int) -> None:
    random = Random(seed)
    read = ReadResult(blocks=[Block(first=4, count=3, columns=columns(3))], last=6)
    for decode, whole in (
        (decode_append, encode_append(asked())),
        (decode_read, encode_read(read)),
    ):
        body = bytearray(whole)
        match seed % 3:
            case 0:
                del body[random.randrange(len(body)) :]
            case 1:
                body[random.randrange(len(body))] ^= 1 << random.randrange(8)
            case _:
                body += random.randbytes(random.randint(1, 9))
        try:
            found = decode(body)
        except Undecodable:
            continue
        # What is no column has no checksum: what it says is checked by the broker.
        assert isinstance(found, AppendRequest)
        assert [x.columns for x in found.batches] == [x.columns for x in asked().batches]


def test_a_request_of_millions_of_batches_takes_no_memory_for_them() -> None:
    small = msgspec.msgpack.encode(Batch(partition=RangeId(""), count=0, columns=columns(0)))
    body = b"\x95\xa1p\0\1\0\xdd" + (10**6).to_bytes(4, "big") + 10**6 * small
    tracemalloc.start()
    with pytest.raises(Undecodable, match="length"):
        decode_append(body)
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()
