"""Pages of both modes of a change feed, and the changes they become."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.cosmos.changes import Changes
from changefeed.feeds.errors import FeedRefused, RangeRefused
from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.feeds.raw_pages import Rows

RANGE = RangeId("0")
LOOKALIKES: Sequence[Any] = (
    *("", "1", "1.0", "=1", "==1", "true", "null", "{}", "={}", '"1"', "[]"),
    *(None, True, False, 0, -0.0, 1, 1.0, 2**53, 2**53 + 1, 1e300),
)
PARTITION_KEYS = (
    st.sampled_from(LOOKALIKES)
    | st.text(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False)
)


def page(*documents: Any) -> bytes:
    return msgspec.json.encode({"_rid": "rid=", "Documents": documents, "_count": 1})


def item(**values: Any) -> dict[str, Any]:
    return {"id": "a", "pk": "p", "_ts": 1_700_000_000, "_lsn": 7, **values}


def latest(*documents: Any, paths: Sequence[str] = ("/pk",)) -> Sequence[Change]:
    return decoded(Changes(paths, all_versions=False), page(*documents))


def versions(*documents: Any, paths: Sequence[str] = ("/pk",)) -> Sequence[Change]:
    return decoded(Changes(paths, all_versions=True), page(*documents))


def decoded(reader: Changes, body: bytes) -> Sequence[Change]:
    """Decode a page, whose columns must say the same, and its documents one by one, too."""
    found, cut = reader.decode(RANGE, body), reader.cut(RANGE, body)
    same = replace(cut, bodies=[bytes(x) for x in cut.bodies])
    assert same == Rows.of(found)
    documents, _, rest = body.rpartition(b"]")
    odd = b',{"_lsn":999999,"metadata":{"lsn":999999}}]'
    with_odd = reader.decode(RANGE, documents + odd + rest)
    assert with_odd[-1].unreadable is not None
    assert [*with_odd[:-1]] == [*found]
    return found


def test_a_latest_version_is_a_replace_with_the_item_as_its_body_byte_for_byte() -> None:
    raw = b'{"Documents":[ { "id":"a", "pk":"p", "x":1.0, "_ts":5, "_lsn":7 } ],"_rid":"rid="}'
    of = list[str]()
    found = Changes(["/pk"], all_versions=False, check=of.append).decode(RANGE, raw)
    assert of == ["rid="]
    assert [*found] == [
        Change(
            range_id=RANGE,
            sequence=(7 << 16) | 0xFFFF,
            key="p",
            id="a",
            operation=Operation.REPLACE,
            body=b'{ "id":"a", "pk":"p", "x":1.0, "_ts":5, "_lsn":7 }',
            committed_us=5_000_000,
        )
    ]


@pytest.mark.parametrize(
    ("paths", "values", "key"),
    [
        (["/pk"], {"pk": "text"}, "text"),
        (["/pk"], {"pk": ""}, ""),
        (["/pk"], {"pk": 7}, "=7"),
        (["/pk"], {"pk": 1.5}, "=1.5"),
        (["/pk"], {"pk": None}, "=null"),
        (["/pk"], {"pk": True}, "=true"),
        (["/pk"], {"pk": "=7"}, "==7"),
        (["/other"], {}, "={}"),
        (["/id"], {}, "a"),
        (["/a/b"], {"a": {"b": "deep"}}, "deep"),
        (["/a/b"], {"a": "flat"}, "={}"),
        (['/"odd name"'], {"odd name": "x"}, "x"),
        (["/a/b", "/a/c", "/id"], {"a": {"b": "x", "c": 2}}, '["x",2,"a"]'),
        (["/tenant", "/user"], {"tenant": "t"}, '["t",{}]'),
        (["/_ts"], {}, "=1700000000"),
    ],
)
def test_the_key_is_the_partition_key_as_text(
    paths: list[str], values: dict[str, Any], key: str
) -> None:
    (change,) = latest(item(**values), paths=paths)
    assert change.key == key


def test_the_key_of_each_item_is_its_own_whatever_those_of_others_are() -> None:
    found = latest(item(pk="a"), item(pk=7, _lsn=8), item(pk="b", _lsn=9))
    assert [x.key for x in found] == ["a", "=7", "b"]


@given(st.lists(PARTITION_KEYS, min_size=1, max_size=2))
def test_keys_are_equal_where_cosmos_db_has_them_equal_and_nowhere_else(
    levels: list[Any],
) -> None:
    """Cosmos DB has no two keys of different types, and knows numbers as 64-bit floats."""
    paths = [f"/k{n}" for n in range(len(levels))]

    def key(values: Sequence[Any]) -> str:
        present = {f"k{n}": x for n, x in enumerate(values) if x is not None}
        (change,) = latest(item(**present), paths=paths)
        return change.key

    def typed(value: Any) -> tuple[str, Any]:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return ("number", float(value)) if number else (type(value).__name__, value)

    others = [[x, *levels[1:]] for x in LOOKALIKES]
    for other in others:
        same = [*map(typed, other)] == [*map(typed, levels)]
        assert (key(other) == key(levels)) is same


@pytest.mark.parametrize("spelling", [b"1", b"1.0", b"1e0", b"10E-1"])
def test_one_key_has_one_text_however_its_writer_spells_it(spelling: bytes) -> None:
    raw = b'{"Documents":[{"id":"a","pk":%b,"_ts":5,"_lsn":7}],"_rid":"r"}' % spelling
    (change,) = decoded(Changes(["/pk"], all_versions=False), raw)
    assert change.key == "=1"


def test_a_number_beyond_all_floats_is_a_key_and_no_crash() -> None:
    raw = b'{"Documents":[{"id":"a","pk":1%b,"_ts":5,"_lsn":7}],"_rid":"r"}' % (b"0" * 400)
    (change,) = decoded(Changes(["/pk"], all_versions=False), raw)
    assert change.key == f'="1{"0" * 400}"'


def test_items_of_one_transaction_have_sequences_of_their_own() -> None:
    changes = latest(item(id="a"), item(id="b"), item(id="c", _lsn=8))
    assert [x.sequence >> 16 for x in changes] == [7, 7, 8]
    assert len({x.sequence for x in changes}) == 3


def version(operation: str, lsn: int, **more: Any) -> dict[str, Any]:
    metadata = {"operationType": operation, "lsn": lsn, "crts": 1_700_000_000}
    return {"metadata": {**metadata, **more.pop("metadata", {})}, **more}


def test_all_versions_tell_operation_image_before_and_delete() -> None:
    first, second = item(_lsn=7, n=1), item(_lsn=8, n=2)
    changes = versions(
        version("create", 7, current=first),
        version("replace", 8, current=second, previous=first),
        version(
            "delete",
            9,
            current={},
            previous=second,
            metadata={"id": "a", "partitionKey": {"pk": "p"}},
        ),
    )
    assert [(x.operation, x.key, x.id, x.sequence >> 16) for x in changes] == [
        (Operation.INSERT, "p", "a", 7),
        (Operation.REPLACE, "p", "a", 8),
        (Operation.DELETE, "p", "a", 9),
    ]
    encoded = [msgspec.json.encode(x) for x in (first, second)]
    assert [x.body for x in changes] == [*encoded, b""]
    assert [x.previous for x in changes] == [None, *encoded]
    assert {x.committed_us for x in changes} == {1_700_000_000_000_000}


def test_a_delete_without_an_image_is_known_by_its_metadata() -> None:
    metadata = {"id": "gone", "partitionKey": {"a": {"b": 3}}}
    (change,) = versions(version("delete", 4, metadata=metadata), paths=["/a/b"])
    assert (change.id, change.key, change.body, change.previous) == ("gone", "=3", b"", None)


def test_a_delete_without_a_key_in_its_metadata_is_known_by_its_image() -> None:
    (change,) = versions(version("delete", 4, current={}, previous=item(pk="last")))
    assert (change.id, change.key) == ("a", "last")


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"Documents":3}', b"[" * 5000])
@pytest.mark.parametrize("all_versions", [False, True])
def test_what_is_no_page_is_refused(body: bytes, *, all_versions: bool) -> None:
    with pytest.raises(FeedRefused, match="else than a page of changes"):
        Changes(["/pk"], all_versions=all_versions).decode(RANGE, body)
    with pytest.raises(FeedRefused, match="else than a page of changes"):
        Changes(["/pk"], all_versions=all_versions).cut(RANGE, body)


def odd_page(*documents: bytes, all_versions: bool = False) -> Sequence[Change]:
    reader = Changes(["/pk"], all_versions=all_versions)
    body = b'{"_rid":"rid=","Documents":[%b]}' % b",".join(documents)
    with pytest.raises(RangeRefused, match=r"sequence .* cannot be read"):
        reader.cut(RANGE, body, end=9)
    return reader.decode(RANGE, body, end=9)


@pytest.mark.parametrize(
    "odd",
    [
        b'{"id":"b","pk":"p","_lsn":"text"}',
        b'{"id":3,"pk":"p","_lsn":8}',
        b'{"id":"b","pk":"p","_ts":"noon","_lsn":8}',
        b'{"id":"b","pk":1e999,"_lsn":8}',
        b'{"id":"\xff","pk":"p","_lsn":8}',
        rb'{"id":"\ud800","pk":"p","_lsn":8}',
        rb'{"id":"b","pk":"\udc00","_lsn":8}',
        rb'{"current":{"id":"b","x":"\ud800"},"metadata":{"operationType":"create","lsn":8}}',
        b'{"pk":"p"}',
        b"null",
        b'{"metadata":{"operationType":"delete","lsn":8,"crts":1,"partitionKey":1e999}}',
        b'{"current":{"id":"b"},"metadata":{"operationType":"truncate","lsn":8,"crts":1}}',
        b'{"current":{"id":3},"metadata":{"operationType":"create","lsn":8,"crts":1}}',
        b'{"current":{"id":"b"},"metadata":{"operationType":"create","lsn":"x","crts":1}}',
        b'{"current":{"id":"b"}}',
    ],
)
def test_what_cannot_be_read_is_marked_and_its_neighbours_are_as_ever(odd: bytes) -> None:
    """No operation is guessed."""
    all_versions = b"current" in odd or b"crts" in odd
    items = [item(id="a", _lsn=7), item(id="c", _lsn=9)]
    if all_versions:
        items = [version("create", x["_lsn"], current=x) for x in items]
    before, after = map(msgspec.json.encode, items)
    found = odd_page(before, odd, after, all_versions=all_versions)
    assert [x.unreadable is None for x in found] == [True, False, True]
    assert found[1].body == odd
    assert (found[0].id, found[2].id) == ("a", "c")
    assert found[0].sequence < found[1].sequence < found[2].sequence


def test_what_cannot_be_read_is_placed_by_the_end_of_its_page_where_nothing_else_says() -> None:
    (found,) = odd_page(b"null")
    assert found.sequence >> 16 == 9


def test_a_property_of_the_users_own_is_not_taken_for_the_systems() -> None:
    raw = b'{"Documents":[{"id":"a","pk":"p","_lsn":"mine","_ts":5,"_lsn":7}],"_rid":"r"}'
    (change,) = decoded(Changes(["/pk"], all_versions=False), raw)
    assert (change.unreadable, change.sequence >> 16) == (None, 7)


def test_half_a_surrogate_pair_in_an_item_stays_as_it_came() -> None:
    odd = rb'{"id":"b","pk":"p","n":[0.10,"}]\ud83d"],"_ts":5,"_lsn":8}'
    raw = b'{"_rid":"rid=","Documents" : [ %b , %b\n,%b]}' % (
        msgspec.json.encode(item(id="a", _lsn=7)),
        odd,
        msgspec.json.encode(item(id="c", _lsn=9)),
    )
    of = list[str]()
    reader = Changes(["/pk"], all_versions=False, check=of.append)
    found = reader.decode(RANGE, raw)
    assert [(x.id, x.unreadable, x.sequence >> 16) for x in found] == [
        ("a", None, 7),
        ("b", None, 8),
        ("c", None, 9),
    ]
    assert found[1].body == odd
    assert {*of} == {"rid="}
    assert [*map(bytes, reader.cut(RANGE, raw).bodies)][1] == odd


def test_an_item_that_has_no_place_at_all_is_refused() -> None:
    document = item()
    del document["_lsn"]
    with pytest.raises(FeedRefused, match="_lsn"):
        latest(document)
