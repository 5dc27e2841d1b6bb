"""What is stored and is no value of its kind is refused as such, whatever is wrong with it."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from changefeed import log
from changefeed.feeds.errors import FeedRefused
from changefeed.log.catalog.catalog import decode_catalog
from changefeed.log.catalog.catalog_store import open_cluster
from changefeed.log.decoding import Undecodable
from changefeed.log.errors import Damaged
from changefeed.log.format.flush import FlushHeader, decode_header
from changefeed.log.format.pack import Place
from changefeed.log.format.runs import Run, decode_run
from changefeed.log.protocol.wire import decode_append
from changefeed.log.stores.memory_store import MemoryStore

FLUSH = (FlushHeader.magic, 1, "b", "i", 1, 1)
ENDED = (Run.magic, 1, "b", 1, 1, 1, False, (), ())
IN_A_ROW = (
    b'c","eras":[{"number":1,"began_us":1,"rows":[{"broker":"\xff","incarnation":"i"}]}],"x":"'
)
NO_TEXT = b"\xff"
"""As the text of a first field; its checksum is right."""


def _packed(magic: bytes, *fields: object) -> bytes:
    body = msgspec.msgpack.encode(("x", *fields)).replace(b"x", NO_TEXT)
    return struct.pack("<8sII", magic, len(body), zlib.crc32(body)) + body


def _json(identity: bytes) -> bytes:
    body = b'{"number":1,"identity":"%s","format":3}' % identity
    return b"%08x\n%s" % (zlib.crc32(body), body)


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda: decode_header(_packed(*FLUSH), "c", Place(1, "b", 1)), Damaged),
        (lambda: decode_run(_packed(*ENDED), "c", Place(1, "b", 1)), Damaged),
        (lambda: decode_catalog(_json(NO_TEXT), "c"), FeedRefused),
        (lambda: decode_catalog(_json(IN_A_ROW), "c"), FeedRefused),
        (lambda: decode_append(b"\x95\xa1%s\0\1\0\x90" % NO_TEXT), Undecodable),
    ],
)
def test_a_text_that_is_no_utf_8_is_damage_like_any_other(
    read: Callable[[], object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        read()


async def test_a_cluster_whose_name_is_no_utf_8_is_none_of_ours() -> None:
    store = MemoryStore()
    store.objects["cluster.json"] = b'{"identity":"\xff"}'
    with pytest.raises(FeedRefused, match="none of a cluster"):
        await open_cluster(store)


def test_bytes_become_values_in_one_place() -> None:
    decoding = {
        path.name
        for path in Path(log.__path__[0]).rglob("*.py")
        if "json.decode(" in path.read_text() or "msgpack.decode(" in path.read_text()
    }
    assert decoding == {"decoding.py"}
