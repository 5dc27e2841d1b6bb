import pytest

from changefeed.feeds.feed import Continuation, RangeId
from changefeed.leases.blob.metadata import LONGEST, Found, Kind
from changefeed.leases.blob.opening import CHECKPOINTS, MEMBERS, OWNERSHIP
from changefeed.leases.blob.tables import blob_name
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Checkpoint, Lease
from tests.support import make

R0 = RangeId("0")


def found(metadata: dict[str, str], written: float = 1_700_000_000.5) -> Found:
    return Found(name="ns/hub/group/ownership/0", metadata=metadata, written=written)


def test_a_lease_is_in_headers_that_have_no_spaces_and_nothing_beyond_ascii() -> None:
    lease = make.lease(owner="zürich  1\n", epoch=0)
    stored = OWNERSHIP.write(lease)
    assert stored.content == b""
    for value in stored.metadata.values():
        assert value.isascii()
        assert not set(value) & set(" \r\n\0")
    assert OWNERSHIP.read(found(dict(stored.metadata))) == lease


def test_what_is_too_long_for_headers_is_in_the_content() -> None:
    checkpoint = Checkpoint(range_id=R0, continuation=Continuation("x" * 9000))
    stored = CHECKPOINTS.write(checkpoint)
    assert sum(map(len, stored.metadata.values())) <= LONGEST
    seen = found(dict(stored.metadata))
    assert seen.content_needed
    assert CHECKPOINTS.read(seen, stored.content) == checkpoint


def test_an_event_processor_reads_owner_offset_and_sequence_number() -> None:
    owned = OWNERSHIP.write(make.lease(owner="host-1", epoch=0))
    assert owned.metadata["ownerid"] == "host-1"
    free = OWNERSHIP.write(make.lease())
    assert free.metadata["ownerid"] == ""
    reached = CHECKPOINTS.write(Checkpoint(range_id=R0, continuation=Continuation("42")))
    assert (reached.metadata["offset"], reached.metadata["sequencenumber"]) == ("42", "42")
    opaque = CHECKPOINTS.write(Checkpoint(range_id=R0, continuation=Continuation("a b")))
    assert (opaque.metadata["offset"], opaque.metadata["sequencenumber"]) == ("a%20b", "0")


def test_what_an_event_processor_wrote_is_read_for_what_it_says() -> None:
    lease = OWNERSHIP.read(found({"ownerid": "their-host"}))
    assert (lease.range.id, lease.owner, lease.epoch) == (R0, "their-host", 1_700_000_000)
    assert lease.stamp == 1_700_000_000.5
    assert OWNERSHIP.read(found({"ownerid": ""})).owner is None
    assert OWNERSHIP.read(found({})).owner is None
    checkpoint = CHECKPOINTS.read(found({"offset": "77", "sequencenumber": "5"}))
    assert (checkpoint.range_id, checkpoint.continuation) == (R0, "77")


def test_each_write_of_an_event_processor_is_a_sign_of_life() -> None:
    first, second = (OWNERSHIP.read(found({"ownerid": "h"}, at)) for at in (10.0, 20.0))
    assert first.sign_of_life != second.sign_of_life


@pytest.mark.parametrize("kind", [OWNERSHIP, CHECKPOINTS, MEMBERS], ids=lambda x: x.folder)
@pytest.mark.parametrize("metadata", [{"changefeed": "nonsense"}, {"changefeed": "{}"}])
def test_other_blobs_are_refused(kind: Kind[Lease], metadata: dict[str, str]) -> None:
    with pytest.raises(ContainerRefused, match="a prefix of its own"):
        kind.read(found(metadata))


@pytest.mark.parametrize("kind", [CHECKPOINTS, MEMBERS], ids=lambda x: x.folder)
def test_blobs_without_metadata_are_refused_where_none_is_a_release(kind: Kind[Lease]) -> None:
    with pytest.raises(ContainerRefused, match="a prefix of its own"):
        kind.read(found({}))


@pytest.mark.parametrize(
    ("key", "name"),
    [("0", "0"), ("r-1_2", "r-1_2"), ("", "%"), (".", "%."), ("a/b", "a%2Fb"), ("x.", "x%2E")],
)
def test_ids_become_names_of_blobs(key: str, name: str) -> None:
    assert blob_name(key) == name


def test_names_of_blobs_are_short_and_differ_as_ids_do() -> None:
    keys = ["", "%", ".", "..", "%.", "A", "a", "ü" * 300, "ü" * 301, "x" * 200, "x" * 201]
    names = {blob_name(x) for x in keys}
    assert len(names) == len(keys)
    assert max(map(len, names)) <= 200
