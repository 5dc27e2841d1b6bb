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
from changefeed.feeds.brokers.ranges import ranges_of
from changefeed.feeds.brokers.transitions import (
    begin_ending,
    close_and_open,
    open_first_era,
    with_collection,
)

IDENTITY = "0123456789abcdef0123456789abcdef"


def a_catalog(parts: int = 2) -> Catalog:
    empty = first_catalog(Cluster(identity=IDENTITY))
    rows = [Row(broker="broker-1", incarnation="i", address="localhost:1")]
    created = with_collection(empty, "orders", parts=parts, identity="c" * 32, now_us=1)
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


def test_a_catalog_of_3072_partitions_and_a_hundred_eras_is_small() -> None:
    eighths = tuple(range(256))
    catalog = replace(a_catalog(12), reshaping={"orders": (eighths,) * 12})
    rows = [
        Row(broker=f"broker-{n}", incarnation="0" * 32, address=f"host-{n}:7070") for n in "123"
    ]
    for era in range(1, 101):
        assert catalog.era is not None
        sealed = {x.broker: 10**6 for x in catalog.era.rows}
        catalog = close_and_open(begin_ending(catalog, era, rows), era, sealed, 2 * 10**15)
    assert len(ranges_of(catalog, "orders").open) == 3072
    assert len(ranges_of(catalog, "orders").in_era(2)) == 3072
    assert len(encode_catalog(catalog)) <= 100_000


FROZEN = (
    b'd8a0a749\n{"number":2,"identity":"0123456789abcdef012345678'
    b'9abcdef","format":6,"members":[],"eras":[{"number":1,"bega'
    b'n_us":2,"rows":[{"broker":"broker-1","incarnation":"i","ad'
    b'dress":"localhost:1","sealed_at":null,"kept_from":1}]}],"r'
    b'eshaping":{},"collections":[{"name":"orders","identity":"c'
    b'ccccccccccccccccccccccccccccccc","parts":2,"created_us":1,'
    b'"since":1,"retain_seconds":null,"retain_bytes":null,"kept_'
    b'era":1,"gone":{}}],"changes":[]}'
)
