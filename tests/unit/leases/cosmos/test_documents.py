"""Lease documents as .NET and Java write them, and what we make of them and write back."""

import base64
import dataclasses
import json
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import Child, FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Hole, hash_of
from changefeed.leases.cosmos import documents
from changefeed.leases.health import RangeHealth
from changefeed.leases.lease import HostName, Incarnation, Lease, RangeEnd, WriteId
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.cosmos.document_ids import DocumentIds
from tests.support import make

PREFIX = "ordersacc.documents.azure.com_jNpiAA==_jNpiAOOJ3Lo="
NAMES = DocumentIds(PREFIX)
DOTNET_NEW = (
    f'{{"id":"{PREFIX}..0","version":0,"LeaseToken":"0",'
    '"FeedRange":{"Range":{"min":"","max":"05C1DFFFFFFFFC"}},"Owner":null,'
    '"ContinuationToken":"\\"7052\\"","properties":{},"timestamp":null,'
    '"Mode":"Incremental Feed"}'
)
DOTNET_OWNED = {
    "id": f"{PREFIX}..0",
    "version": 0,
    "_etag": '"e1"',
    "LeaseToken": "0",
    "PartitionId": "0",
    "FeedRange": {"Range": {"min": "", "max": "05C1DFFFFFFFFC"}},
    "Owner": "net-1",
    "ContinuationToken": '"7052"',
    "properties": {"theirs": "kept"},
    "timestamp": "2026-08-01T10:00:00.1234567Z",
    "Mode": "Incremental Feed",
    "_ts": 1785578400,
}
STAMP = 1785578400.123456
RANGE = FeedRange(id=RangeId("0"), low="", high="05C1DFFFFFFFFC")
A, B = HostName("a"), HostName("b")
A1 = Incarnation("a-1")


def stored(document: dict[str, Any], *operations: Any, etag: str = '"e2"') -> dict[str, Any]:
    """Return a document after a partial update, as the server would keep it."""
    changed: dict[str, Any] = json.loads(json.dumps(document))
    for operation in operations:
        *steps, last = operation["path"].split("/")[1:]
        inner = changed
        for step in steps:
            inner = inner[step]
        inner[last] = operation["value"]
    return changed | {"_etag": etag}


def written(document: dict[str, Any], lease: Lease, attempt: str = "w") -> dict[str, Any]:
    seen = documents.seen_in(lease.version)
    assert seen is not None
    return stored(document, *documents.changes(lease, seen, attempt))


def new(lease: Lease, attempt: str = "w") -> dict[str, Any]:
    return documents.new_document(NAMES, documents.INCREMENTAL, lease, attempt)


def ours() -> dict[str, Any]:
    """A document that host A has written."""
    lease = make.lease(RANGE, at='"7052"')
    document = new(lease, "w0") | {
        "_etag": '"e1"',
        "_ts": 1,
    }
    taken = documents.lease_in(document).taken_by(A, A1)
    return written(document, taken.stamped(write_id=WriteId("w1"), stamp=STAMP))


# Writing


def test_a_new_lease_is_the_document_of_dotnet_byte_for_byte() -> None:
    lease = make.lease(RANGE, at='"7052"')
    document = new(lease)
    assert set(document["properties"]) == {"changefeed", "changefeed-written"}
    document["properties"] = {}
    assert json.dumps(document, separators=(",", ":")) == DOTNET_NEW


def test_a_part_of_a_range_is_a_lease_of_version_1() -> None:
    part = FeedRange(
        id=RangeId("-05C1DFFFFFFFFC"),
        high="05C1DFFFFFFFFC",
        parents=(RangeId("0"),),
        of=RangeId("0"),
        generation=(0, 1),
    )
    lease = make.lease(part, at='"9"')
    document = new(lease)
    assert document["version"] == 1
    assert document["id"] == f"{PREFIX}..-05C1DFFFFFFFFC"
    assert document["LeaseToken"] == "-05C1DFFFFFFFFC"
    assert documents.lease_in(document | {"_etag": "e"}).range == part
    # .NET says nothing but its bounds.
    theirs = documents.lease_in(document | {"_etag": "e", "properties": {}}).range
    assert theirs == dataclasses.replace(part, parents=(), of=None)


def test_a_renewal_carries_no_position_and_a_checkpoint_nothing_else() -> None:
    lease = documents.lease_in(DOTNET_OWNED)
    seen = documents.seen_in(lease.version)
    assert seen is not None
    renewal = documents.changes(lease.without_position().renewed(), seen, "w")
    assert [x["path"] for x in renewal] == [
        "/Owner",
        "/timestamp",
        "/properties/changefeed",
        "/properties/changefeed-written",
    ]
    checkpoint = documents.checkpoint_changes(lease, seen, "w")
    assert [x["path"] for x in checkpoint] == [
        "/properties/changefeed-written",
        "/ContinuationToken",
    ]


def test_bounds_are_written_where_an_old_document_lacks_them() -> None:
    document = {x: y for x, y in DOTNET_OWNED.items() if x not in ("FeedRange", "properties")}
    lease = documents.lease_in(document)
    assert (lease.range.low, lease.range.high) == ("", "")
    document = written(document, replace(lease, range=RANGE))
    assert document["FeedRange"] == {"Range": {"min": "", "max": "05C1DFFFFFFFFC"}}
    assert documents.lease_in(document).range == RANGE


# Reading others


def test_a_lease_of_dotnet_is_read_with_its_position_and_its_sign_of_life() -> None:
    lease = documents.lease_in(DOTNET_OWNED)
    assert (lease.range, lease.position) == (RANGE, '"7052"')
    assert (lease.owner, lease.incarnation, lease.epoch) == ("net-1", None, 1)
    assert lease.stamp == STAMP
    assert lease.renewals == round(STAMP * 1_000_000)


def test_a_lease_that_dotnet_has_just_created_is_free_and_in_no_epoch() -> None:
    document = json.loads(DOTNET_NEW) | {"_etag": "e", "_ts": 5}
    lease = documents.lease_in(document)
    assert (lease.owner, lease.epoch, lease.stamp) == (None, 0, 5.0)
    assert documents.started(document)
    assert not documents.started(document | {"ContinuationToken": None})


@pytest.mark.parametrize(
    "text",
    [
        "2026-08-01T10:00:00.1234567Z",
        "2026-08-01T10:00:00.123456Z",
        "2026-08-01T10:00:00.123456789Z",
        "2026-08-01T10:00:00.123456Z[UTC]",
        "2026-08-01T12:00:00.123456+02:00",
    ],
)
def test_timestamps_are_read_as_every_processor_writes_them(text: str) -> None:
    assert documents.stamp_in({"timestamp": text, "_ts": 1}) == STAMP


@pytest.mark.parametrize("document", [{"_ts": 7}, {"_ts": 7, "timestamp": "yesterday"}])
def test_the_servers_time_stands_in_for_a_timestamp(document: dict[str, Any]) -> None:
    assert documents.stamp_in(document) == 7.0


def java_lease(*tokens: str | None) -> dict[str, Any]:
    bounds = {"min": "", "max": "FF"}
    state = {
        "V": 1,
        "Rid": "jNpiAOOJ3Lo=",
        "Mode": "INCREMENTAL",
        "StartFrom": {"Type": "BEGINNING"},
        "Continuation": {
            "V": 1,
            "Rid": "jNpiAOOJ3Lo=",
            "Continuation": [{"token": x, "range": bounds} for x in tokens],
            "Range": bounds,
        },
    }
    return {
        "id": f"{PREFIX}..-FF",
        "_etag": '"e1"',
        "LeaseToken": "-FF",
        "version": 1,
        "feedRange": {"Range": bounds},
        "ContinuationToken": base64.b64encode(json.dumps(state).encode()).decode(),
        "timestamp": "2026-08-01T10:00:00.123456Z[UTC]",
        "Owner": "java-1",
    }


def test_a_lease_of_java_is_read_down_to_the_raw_token() -> None:
    lease = documents.lease_in(java_lease('"42"'))
    assert lease.position == '"42"'
    assert lease.range == FeedRange(id=RangeId("-FF"), low="", high="FF", generation=(0, 1))
    assert (lease.owner, lease.stamp) == ("java-1", STAMP)


@pytest.mark.parametrize("tokens", [(), (None,), ('"1"', '"2"')])
def test_a_state_of_java_without_one_token_is_refused(tokens: tuple[str | None, ...]) -> None:
    with pytest.raises(StoreRefused, match="until its splits are done"):
        documents.lease_in(java_lease(*tokens))


def test_the_leases_of_java_are_not_shared() -> None:
    documents.check_not_java(DOTNET_OWNED)
    with pytest.raises(StoreRefused, match="changefeed positions import"):
        documents.check_not_java(java_lease('"42"'))


# Sharing with .NET


def test_health_and_load_of_a_range_are_carried_until_another_processor_writes() -> None:
    failing = RangeHealth(last_progress=STAMP, failing_since=STAMP, last_error="KeyError: 'x'")
    lease = documents.lease_in(ours()).with_health(failing).with_load(0.35, cooling=True)
    document = written(ours(), lease)
    found = documents.lease_in(document)
    assert (found.health, found.load, found.cooling) == (failing, 0.35, True)
    well = written(document, found.with_health(RangeHealth()).with_load(None, cooling=False))
    assert not {"health", "load", "moved"} & set(json.loads(well["properties"]["changefeed"]))
    theirs = documents.lease_in(document | {"timestamp": "2026-08-01T11:00:00.0000000Z"})
    assert (theirs.health, theirs.load, theirs.cooling) == (RangeHealth(), None, False)


def test_a_lease_that_dotnet_took_from_us_is_in_a_new_epoch() -> None:
    robbed = ours() | {"Owner": "net-1", "timestamp": "2026-08-01T11:00:00.0000000Z"}
    lease = documents.lease_in(robbed)
    assert (lease.owner, lease.incarnation, lease.epoch) == ("net-1", None, 2)
    later = robbed | {"timestamp": "2026-08-01T11:00:17.0000000Z"}
    assert documents.lease_in(later).sign_of_life != lease.sign_of_life
    assert documents.lease_in(later).epoch == 2
    freed = later | {"Owner": None}
    assert (documents.lease_in(freed).owner, documents.lease_in(freed).epoch) == (None, 2)


@pytest.mark.parametrize("owner", ["net-1", None])
def test_what_dotnet_writes_resumes_no_paused_range_and_begins_no_ended_one(
    owner: str | None,
) -> None:
    theirs = {"Owner": owner, "timestamp": "2026-08-01T11:00:00.0000000Z"}
    lease = documents.lease_in(ours())
    paused = written(ours(), lease.paused_because("maintenance"))
    assert documents.lease_in(paused | theirs).paused == "maintenance"
    end = RangeEnd(
        children=tuple(
            Child(
                range=FeedRange(id=RangeId(x), low=low, high=high, generation=(1, 0)),
                start=Position('"7052"'),
            )
            for x, low, high in (("1", "", "02"), ("2", "02", "05C1DFFFFFFFFC"))
        ),
        by="split",
    )
    ended = written(ours(), lease.ended_in(end))
    assert documents.lease_in(ended).end == documents.lease_in(ended | theirs).end == end
    assert documents.lease_in(ended | {"LeaseToken": "7"}).end is None  # a copy of its parent


def test_a_host_of_dotnet_under_our_name_is_another() -> None:
    document = ours() | {"timestamp": "2026-08-01T11:00:00.0000000Z"}
    lease = documents.lease_in(document)
    assert (lease.owner, lease.incarnation, lease.epoch) == ("a", None, 2)


def test_an_owner_that_a_person_has_written_is_in_a_new_epoch() -> None:
    lease = documents.lease_in(ours() | {"Owner": "c"})
    assert (lease.owner, lease.incarnation, lease.epoch) == ("c", None, 2)


def test_a_request_of_ours_does_not_keep_an_owner_of_dotnet_alive() -> None:
    lease = documents.lease_in(DOTNET_OWNED)
    asked = written(DOTNET_OWNED, lease.without_position().requested_by(B))
    assert asked["timestamp"] == "2026-08-01T10:00:00.1234560Z"
    found = documents.lease_in(asked)
    assert (found.next_owner, found.sign_of_life) == ("b", lease.sign_of_life)
    renewed = asked | {"timestamp": "2026-08-01T10:00:17.0000000Z"}
    moved = documents.lease_in(renewed)
    assert (moved.next_owner, moved.epoch) == (None, lease.epoch)
    assert moved.sign_of_life != lease.sign_of_life


def test_what_is_done_behind_a_position_counts_until_dotnet_reads_on() -> None:
    behind = Checkpoint(Position('"7052"'), 9000, (Hole(hash_of("k"), 8000, 2),))
    lease = documents.lease_in(ours())
    document = written(ours(), lease.with_checkpoint(behind).stamped(stamp=STAMP))
    assert document["ContinuationToken"] == '"7052"'
    assert documents.lease_in(document).checkpoint == behind
    document["ContinuationToken"] = '"7100"'
    assert documents.lease_in(document).checkpoint == Checkpoint(Position('"7100"'))


def test_the_children_of_a_split_by_dotnet_do_not_inherit_our_part() -> None:
    child = ours() | {"id": f"{PREFIX}..1", "LeaseToken": "1", "Owner": None, "timestamp": None}
    lease = documents.lease_in(child)
    assert (lease.owner, lease.epoch, lease.checkpoint_epoch, lease.write_id) == (
        None,
        0,
        0,
        None,
    )
    assert documents.last_attempt(child) == ""


# Refusals and names


def test_an_entry_that_cannot_be_read_is_refused_with_advice() -> None:
    document = ours()
    document["properties"]["changefeed"] = '{"of": 7}'
    with pytest.raises(StoreRefused, match="newer version of this program"):
        documents.lease_in(document)


@pytest.mark.parametrize(
    ("found", "mode"),
    [("Full-Fidelity Feed", documents.INCREMENTAL), (None, documents.FULL_FIDELITY)],
)
def test_the_leases_of_another_mode_are_refused(found: str | None, mode: str) -> None:
    with pytest.raises(StoreRefused, match="a prefix of their own"):
        documents.check_mode(DOTNET_OWNED | {"Mode": found}, mode)
    documents.check_mode(DOTNET_OWNED | {"Mode": found}, found or documents.INCREMENTAL)


def test_ids_are_names_where_cosmos_takes_them_and_hashes_elsewhere() -> None:
    names = DocumentIds("p")
    assert (names.info, names.lock) == ("p.info", "p.lock")
    assert names.lease("-05C1DFFFFFFFFC") == "p..-05C1DFFFFFFFFC"
    assert names.record("host", "web-1.example") == "p.host.web-1.example"
    odd = ["", "a/b", "a?b", "a#b", "a\\b", "a\0", "ü", "x" * 300, ".x", "x ", "~x"]
    ids = [names.lease(x) for x in odd]
    assert all(x.startswith("p..~") and len(x) == 44 for x in ids)
    assert len(set(ids)) == len(ids)


def test_no_marker_or_record_looks_like_a_lease() -> None:
    names = DocumentIds("p")
    beside = [names.info, names.lock, names.record("host", ".."), names.record("owner", "")]
    assert not any(x.startswith(names.leases) for x in beside)
