"""The format of the catalog, and what is looked up in it."""

import pytest
from msgspec.structs import replace

from changefeed.feeds.brokers.catalog import (
    FORMAT,
    Catalog,
    Cluster,
    Row,
    decode_catalog,
    encode_catalog,
    first_catalog,
)
from changefeed.feeds.brokers.errors import ClusterRefused
from changefeed.feeds.brokers.transitions import open_first_era, with_collection

IDENTITY = "0123456789abcdef0123456789abcdef"


def a_catalog() -> Catalog:
    empty = first_catalog(Cluster(identity=IDENTITY))
    rows = [Row(broker="broker-1", incarnation="i", address="localhost:1")]
    created = with_collection(empty, "orders", parts=2, identity="c" * 32, now_us=1)
    return open_first_era(created, rows, 2)


def test_the_bytes_of_a_catalog_are_frozen() -> None:
    assert encode_catalog(a_catalog()) == FROZEN


def test_a_catalog_with_a_wrong_byte_is_refused() -> None:
    data = encode_catalog(a_catalog())
    for place in range(0, len(data), 7):
        wrong = bytearray(data)
        wrong[place] ^= 1
        with pytest.raises(ClusterRefused, match="the catalog of the cluster"):
            decode_catalog(bytes(wrong), IDENTITY)


@pytest.mark.parametrize(
    ("catalog", "identity", "named"),
    [
        (a_catalog(), "f" * 32, "one copy"),  # of another cluster
        (replace(a_catalog(), format=FORMAT - 1), IDENTITY, "in another place"),
        (replace(a_catalog(), format=FORMAT + 1), IDENTITY, "upgrade"),
    ],
)
def test_a_catalog_that_is_not_the_one_wanted_or_of_another_format_is_refused(
    catalog: Catalog, identity: str, named: str
) -> None:
    with pytest.raises(ClusterRefused, match=named):
        decode_catalog(encode_catalog(catalog), identity)


FROZEN = (
    b'32db5f5c\n{"number":2,"identity":"0123456789abcdef0123456789'
    b'abcdef","format":5,"members":[],"eras":[{"number":1,"began_u'
    b's":2,"state":"open","rows":[{"broker":"broker-1","incarnatio'
    b'n":"i","address":"localhost:1","sealed_at":null,"kept_from":'
    b'1}],"planned":[]}],"collections":[{"name":"orders","identity'
    b'":"cccccccccccccccccccccccccccccccc","parts":2,"created_us":'
    b'1,"cuts":[[0],[0]],"retain_seconds":null,"retain_bytes":null'
    b',"partitions":[[1,0,0,255,"broker-1",null,0,0,0,0],[1,1,0,25'
    b'5,"broker-1",null,0,0,0,0]]}]}'
)
