"""Lease documents of the .NET change feed processor v3, to leases and back. No I/O.

A document holds what every processor reads: token, owner, position, timestamp. What
is ours alone (epoch, renewals, a request for the lease) is JSON text in entries of
its ``properties`` (``entries``), a table of strings that other processors carry along
untouched. So a fleet of ours and one of theirs can share the leases. A checkpoint need not
write what it does not know of the ownership. What is done behind a position counts as long as
the position is the one that it was written with.

They do not know our part, so it may be out of date. Ours repeats the owner and timestamp
that were written with it: if they are unchanged, no other processor has written. If not,
another processor has, and every such write counts as a sign of life of the owner it names, in
an epoch after the one we wrote.

A document whose position is null belongs to a range that was never read. It is no
lease to us, who settle where a range starts when its lease is created: ``create`` then
fills in the position, and touches nothing else.

Limits: stamps of other processors are taken as they are, to the microsecond. A document
in which another processor keeps no ``properties`` (Java's) forgets our part at each of
its writes; take such leases over when its fleet has stopped.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, Position
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.cosmos.entries import (
    BEHIND,
    OWNERSHIP,
    WRITTEN,
    CheckpointEntry,
    Ownership,
    WriteEntry,
    all_entries,
    checkpoint_entries,
    entry,
    range_in,
    timestamp_of,
)
from changefeed.leases.cosmos.java_continuation import raw_token
from changefeed.leases.lease import Lease, Version
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document

Operation: TypeAlias = dict[str, Any]

INCREMENTAL = "Incremental Feed"
FULL_FIDELITY = "Full-Fidelity Feed"

LISTED = (
    "SELECT c.id, c.partitionKey, c._etag, c._ts, c.LeaseToken, c.PartitionId, c.FeedRange,"
    " c.feedRange, c.Owner, c.properties, c.timestamp, c.Mode,"
    " IS_STRING(c.ContinuationToken) AS started FROM c WHERE STARTSWITH(c.id, @begin)"
)
"""Selects what a listing needs: everything but the positions."""


class VersionToken(msgspec.Struct, frozen=True, array_like=True):
    """What the version of a lease says of its document: a write needs to know it."""

    etag: str
    epoch: int
    low: str
    high: str
    has_properties: bool
    has_behind: bool = False


def seen_in(version: Version) -> VersionToken | None:
    """Return what a version says, ``None`` if it is none of ours."""
    try:
        return msgspec.json.decode(version, type=VersionToken)
    except (msgspec.DecodeError, ValueError):
        return None


def new_document(names: DocumentIds, mode: str, lease: Lease, attempt: str) -> Document:
    """Return the document of a new lease, in the order in which .NET writes it."""
    name = names.lease(lease.range_id)
    assert lease.position is not None, f"{name}: .NET would take it for a range never read"
    return {
        "id": name,
        "version": int(is_part(lease.range)),
        "LeaseToken": lease.range_id,
        "FeedRange": _feed_range(lease.range),
        "Owner": lease.owner,
        "ContinuationToken": lease.position,
        "properties": all_entries(lease, attempt, has_behind=False),
        "timestamp": timestamp_of(lease.stamp),
        "Mode": mode,
    }


def changes(lease: Lease, seen: VersionToken, attempt: str) -> list[Operation]:
    """Return the partial update that writes ``lease``, with the position if carried."""
    assert lease.epoch >= seen.epoch, (
        f"lease {lease.range_id!r}: epoch {seen.epoch} would go back to {lease.epoch}"
    )
    place = lease.range
    operations = [
        _set("/Owner", lease.owner),
        _set("/timestamp", timestamp_of(lease.stamp)),
        *_set_properties(all_entries(lease, attempt, has_behind=seen.has_behind), seen),
    ]
    if (place.low, place.high) != (seen.low, seen.high):
        operations.append(_set("/FeedRange", _feed_range(place)))
    if lease.position is not None:
        operations.append(_set("/ContinuationToken", lease.position))
    return operations


def checkpoint_changes(lease: Lease, seen: VersionToken, attempt: str) -> list[Operation]:
    """Return the update that writes the position of ``lease``, and nothing else of it."""
    assert lease.position is not None, f"lease {lease.range_id!r}: a checkpoint of nothing"
    assert lease.checkpoint_epoch == lease.epoch, (
        f"lease {lease.range_id!r}: a checkpoint of epoch {lease.checkpoint_epoch} in epoch "
        f"{lease.epoch}"
    )
    return [
        *_set_properties(checkpoint_entries(lease, attempt, has_behind=seen.has_behind), seen),
        _set("/ContinuationToken", lease.position),
    ]


def first_position(position: Position) -> list[Operation]:
    """Return the update that gives a document of another processor its first position."""
    return [_set("/ContinuationToken", position)]


def started(document: Mapping[str, Any]) -> bool:
    """Whether it has a position, and so is a lease."""
    return bool(document.get("started", document.get("ContinuationToken") is not None))


def last_attempt(document: Mapping[str, Any]) -> str:
    """Return the name of our last attempt that got through, if that is known."""
    written = entry(document, WRITTEN, WriteEntry)
    return "" if written is None else written.attempt


def is_foreign(document: Mapping[str, Any]) -> bool:
    """Whether another processor was the last to write to it."""
    ours = entry(document, OWNERSHIP, Ownership)
    now = (document.get("Owner"), document.get("timestamp"))
    return ours is None or now != (ours.lease.owner, ours.at)


def forgets_our_part(document: Mapping[str, Any]) -> bool:
    """Whether a processor wrote it that keeps no ``properties``, as Java's does: epochs begin
    again, and requests and pauses are lost, at each of its writes.
    """
    return bool(document.get("Owner")) and not isinstance(document.get("properties"), dict)


def check_mode(document: Mapping[str, Any], mode: str) -> None:
    """Refuse the leases of a fleet that reads the feed in another mode."""
    found = document.get("Mode") or INCREMENTAL
    if found != mode:
        raise StoreRefused(
            f"lease {document.get('id')!r} was made for the mode {found!r}, and this host "
            f"reads the feed as {mode!r}: their positions do not fit each other. Give the "
            "leases of each mode a prefix of their own"
        )


def check_not_java(document: Mapping[str, Any]) -> None:
    """Refuse to work with Java's version 1 leases: their positions have another form."""
    if "feedRange" in document:
        raise StoreRefused(
            f"lease {document.get('id')!r} is in the form of a Java processor, which cannot "
            "be shared with: stop that processor, and import its leases under a prefix of "
            "their own (changefeed positions import)"
        )


def lease_in(document: Mapping[str, Any]) -> Lease:
    """Read a document. A listed one carries no position."""
    ours = entry(document, OWNERSHIP, Ownership)
    low, high = bounds_in(document)
    lease = _by_others(document, ours) if is_foreign(document) else _by_us(document, ours)
    seen = VersionToken(
        etag=document["_etag"],
        epoch=lease.epoch,
        low=low,
        high=high,
        has_properties=isinstance(document.get("properties"), dict),
        has_behind=entry(document, BEHIND, CheckpointEntry) is not None,
    )
    return replace(
        lease,
        range=_feed_range_in(document, ours),
        checkpoint=_checkpoint_in(document),
        version=version_of(seen),
    )


def _feed_range_in(document: Mapping[str, Any], ours: Ownership | None) -> FeedRange:
    low, high = bounds_in(document)
    if ours is not None:
        return dataclasses.replace(ours.lease.range, low=low, high=high)
    found = FeedRange(id=range_in(document), low=low, high=high)
    # Others do not say its generation: what they cut is named by its bounds.
    return dataclasses.replace(found, generation=(0, int(is_part(found))))


def _checkpoint_in(document: Mapping[str, Any]) -> Checkpoint | None:
    token = document.get("ContinuationToken")
    if token is None:
        return None
    position = Position(raw_token(token) if "feedRange" in document else token)
    behind = entry(document, BEHIND, CheckpointEntry)
    if behind is not None and behind.checkpoint:
        ours = Checkpoint.of_text(behind.checkpoint)
        if ours.position == position:  # else another processor has read on, or it was reset
            return ours
    return Checkpoint(position)


def is_part(place: FeedRange) -> bool:
    """Whether it is named by its hash bounds, as in version 1, not as a range of the feed."""
    return bool(place.high) and place.id == f"{place.low}-{place.high}"


def version_of(seen: VersionToken) -> Version:
    return Version(msgspec.json.encode(seen).decode())


def bounds_in(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the hash bounds of a lease, empty where an old document has none."""
    # .NET writes FeedRange, Java feedRange.
    found = document.get("FeedRange") or document.get("feedRange") or {}
    bounds = found.get("Range") or {}
    return bounds.get("min") or "", bounds.get("max") or ""


def stamp_in(document: Mapping[str, Any]) -> float | None:
    """Read the timestamp of any processor; else the server's own, in whole seconds."""
    text = document.get("timestamp")
    if isinstance(text, str):
        try:
            # Java's once had the name of the zone behind the zone itself.
            moment = datetime.fromisoformat(text.removesuffix("[UTC]"))
        except ValueError:
            pass
        else:
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    found = document.get("_ts")
    return None if found is None else float(found)


def _by_us(document: Mapping[str, Any], ours: Ownership | None) -> Lease:
    assert ours is not None, "what we wrote last has our part"
    written = entry(document, WRITTEN, WriteEntry) or WriteEntry(of=ours.of)
    return replace(
        ours.lease, checkpoint_epoch=written.checkpoint_epoch, write_id=written.write_id
    )


def _by_others(document: Mapping[str, Any], ours: Ownership | None) -> Lease:
    """Return what another processor has made of it since we last wrote, if we ever did.

    Its stamp moves with each of its writes, so that is its sign of life. Whatever it had
    to do with a request or a pause of ours, it does not know of them.
    """
    owner, stamp = document.get("Owner") or None, stamp_in(document)
    written = document.get("timestamp") is not None or owner is not None
    before, epoch = None if ours is None else ours.lease, int(written)
    if before is not None:
        # It may go on in an epoch that we have already given it.
        same = before.incarnation is None and owner is not None and before.owner == owner
        epoch = before.epoch + (0 if same else 1)
    return Lease(
        range=FeedRange(id=range_in(document)),
        owner=owner,
        epoch=epoch,
        renewals=int((stamp or 0) * 1_000_000),
        end=None if before is None else before.end,
        paused=None if before is None else before.paused,
        stamp=stamp,
        checkpoint_epoch=epoch if written and started(document) else 0,
    )


def _set_properties(entries: Mapping[str, str], seen: VersionToken) -> Sequence[Operation]:
    assert entries.keys() <= {OWNERSHIP, WRITTEN, BEHIND}, f"{entries.keys()} are not all ours"
    if seen.has_properties:
        return [_set(f"/properties/{name}", text) for name, text in entries.items()]
    return [_set("/properties", dict(entries))]


def _set(path: str, value: Any) -> Operation:
    return {"op": "set", "path": path, "value": value}


def _feed_range(feed_range: FeedRange) -> Document:
    return {"Range": {"min": feed_range.low, "max": feed_range.high}}
