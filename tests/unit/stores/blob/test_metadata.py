"""How records lie in blobs, beside what the Event Hubs SDKs write there."""

import msgspec
import pytest

from changefeed.runtime.errors import StoreRefused
from changefeed.stores.blob.metadata import MAX_METADATA, ListedBlob, record_in, stored
from changefeed.stores.blob.store import blob_name
from changefeed.stores.store import Record


def found(metadata: dict[str, str], written: float = 1_700_000_000.5) -> ListedBlob:
    return ListedBlob(name="ns/hub/group/ownership/0", metadata=metadata, written=written)


def owned(by: str | None) -> Record:
    return Record(kind="ownership", key="0", body=msgspec.json.encode({"owner": by}))


def reached(position: str) -> Record:
    return Record(kind="checkpoint", key="0", body=b'{"epoch":1}', position=position)


def test_a_record_is_in_headers_that_have_no_spaces_and_nothing_beyond_ascii() -> None:
    record = owned("zürich  1\n")
    kept = stored(record)
    assert kept.content == b""
    for value in kept.metadata.values():
        assert value.isascii()
        assert not set(value) & set(" \r\n\0")
    assert record_in("ownership", found(dict(kept.metadata))) == record


def test_what_is_too_long_for_headers_is_in_the_content() -> None:
    record = reached("x" * 9000)
    kept = stored(record)
    assert sum(map(len, kept.metadata.values())) <= MAX_METADATA
    seen = found(dict(kept.metadata))
    assert seen.content_needed
    assert record_in("checkpoint", seen, kept.content) == record


def test_an_event_processor_reads_owner_offset_and_sequence_number() -> None:
    assert stored(owned("host-1")).metadata["ownerid"] == "host-1"
    assert stored(owned(None)).metadata["ownerid"] == ""
    number, opaque = (stored(reached(x)).metadata for x in ("42", "a b"))
    assert (number["offset"], number["sequencenumber"]) == ("42", "42")
    assert (opaque["offset"], opaque["sequencenumber"]) == ("a%20b", "0")


def test_what_an_event_processor_wrote_is_read_for_what_it_says() -> None:
    for owner, said in [("their-host", "their-host"), ("", None)]:
        body = msgspec.json.decode(record_in("ownership", found({"ownerid": owner})).body)
        assert (body["range"]["id"], body["owner"]) == ("0", said)
        assert (body["epoch"], body["stamp"]) == (1_700_000_000, 1_700_000_000.5)
    assert msgspec.json.decode(record_in("ownership", found({})).body)["owner"] is None
    checkpoint = record_in("checkpoint", found({"offset": "77", "sequencenumber": "5"}))
    assert (checkpoint.key, checkpoint.position) == ("0", "77")


def test_each_write_of_an_event_processor_is_a_sign_of_life() -> None:
    first, second = (record_in("ownership", found({"ownerid": "h"}, at)) for at in (10.0, 20.0))
    assert first.body != second.body


@pytest.mark.parametrize("kind", ["ownership", "checkpoint", "host"])
@pytest.mark.parametrize("metadata", [{"changefeed": "nonsense"}, {"changefeed": "{}"}, {}])
def test_other_blobs_are_refused(kind: str, metadata: dict[str, str]) -> None:
    if kind == "ownership" and not metadata:
        return  # a release, by services that drop an empty owner
    with pytest.raises(StoreRefused, match="a prefix of its own"):
        record_in(kind, found(metadata))


def test_names_of_blobs_are_short_and_differ_as_ids_do() -> None:
    keys = ["", "%", ".", "..", "%.", "A", "a", "ü" * 300, "ü" * 301, "x" * 200, "x" * 201]
    names = {blob_name(x) for x in keys}
    assert len(names) == len(keys)
    assert max(map(len, names)) <= 200
