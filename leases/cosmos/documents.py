"""Lease documents of the .NET change feed processor v3, to leases and back. No I/O.

A document holds what every processor reads: token, owner, position, timestamp. What
is ours alone (epoch, renewals, a request for the lease) is JSON text in entries of
its ``properties``, a table of strings that other processors carry along untouched. So a
fleet of ours and one of theirs can share the leases. One entry is about ownership, another
about the last write and the checkpoint, so that a checkpoint need not write what it
does not know. A third, where there was ever need for it, has what is done behind the position;
it counts as long as the position is the one that it was written with.

They do not know our part, so it may be out of date. Ours repeats the owner and timestamp
that were written with it: if they are unchanged, no other processor has written. If not,
another processor has, and every such write counts as a sign of life of the owner it names, in
an epoch after the one we wrote. When .NET splits a range it copies the properties of the
parent into the children; ours name their range, and count for no other.

A document whose position is null belongs to a range that was never read. It is no
lease to us, who settle where a range starts when its lease is created: ``create`` then
fills in the position, and touches nothing else.

Limits: stamps of other processors are taken as they are, to the microsecond. A document
in which another processor keeps no ``properties`` (Java's) forgets our part at each of
its writes; take such leases over when its fleet has stopped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.cosmos.java_continuation import raw_token
from changefeed.leases.deaths import NO_DEATHS, Deaths
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth
from changefeed.leases.lease import End, HostName, KeyRequest, Lease, Version
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.cosmos.document_ids import Names

Document: TypeAlias = dict[str, Any]
Operation: TypeAlias = dict[str, Any]

INCREMENTAL = "Incremental Feed"
FULL_FIDELITY = "Full-Fidelity Feed"
OWNERSHIP, WRITTEN, BEHIND = "changefeed", "changefeed-written", "changefeed-behind"
"""The entries of ``properties`` that are ours."""

LISTED = (
    "SELECT c.id, c.partitionKey, c._etag, c._ts, c.LeaseToken, c.PartitionId, c.FeedRange,"
    " c.feedRange, c.Owner, c.properties, c.timestamp, c.Mode,"
    " IS_STRING(c.ContinuationToken) AS started FROM c WHERE STARTSWITH(c.id, @begin)"
)
"""Selects what a listing needs: everything but the positions."""


class _Ownership(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who owns the range ``of``. ``owner`` and ``at`` repeat what was written as ``Owner``
    and ``timestamp``.
    """

    of: str
    owner: str | None = None
    at: str | None = None
    incarnation: str | None = None
    epoch: int = 0
    renewals: int = 0
    next_owner: str | None = None
    key_request: KeyRequest | None = None
    end: End | None = None
    paused: str | None = None
    health: RangeHealth | None = None
    deaths: Deaths = NO_DEATHS
    load: float | None = None
    cooling: bool = False
    stamp: float | None = None
    parents: tuple[str, ...] = ()
    sub_range_of: str | None = None
    generation: tuple[int, int] = (0, 0)


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our last write to the range ``of``; ``attempt`` is new for every try to write."""

    of: str
    attempt: str = ""
    write_id: str | None = None
    checkpoint_epoch: int = 0


class _Behind(msgspec.Struct, frozen=True):
    """The text of a checkpoint of the range ``of``; empty if its position says all."""

    of: str
    checkpoint: str


Entry = TypeVar("Entry", _Ownership, _Written, _Behind)


class VersionToken(msgspec.Struct, frozen=True, array_like=True):
    """What the version of a lease says of its document: a write needs to know it."""

    etag: str
    epoch: int
    low: str
    high: str
    has_properties: bool
    has_behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How the documents of one container look: their names, key and mode."""

    names: Names
    partitioned_by_id: bool = True
    mode: str = INCREMENTAL


def seen_in(version: Version) -> VersionToken | None:
    """Return what a version says, ``None`` if it is none of ours."""
    try:
        return msgspec.json.decode(version, type=VersionToken)
    except (msgspec.DecodeError, ValueError):
        return None


def new_document(form: Form, lease: Lease, attempt: str) -> Document:
    """Return the document of a new lease, in the order in which .NET writes it."""
    name = form.names.lease(lease.range_id)
    assert lease.position is not None, f"{name}: .NET would take it for a range never read"
    key = {} if form.partitioned_by_id else {"partitionKey": name}
    return {
        "id": name,
        **key,
        "version": int(is_part(lease.range)),
        "LeaseToken": lease.range_id,
        "FeedRange": _feed_range(lease.range),
        "Owner": lease.owner,
        "ContinuationToken": lease.position,
        "properties": {
            OWNERSHIP: _ownership_text(lease),
            WRITTEN: _written(lease, attempt),
            **_behind(lease, has_behind=False),
        },
        "timestamp": timestamp_of(lease.stamp),
        "Mode": form.mode,
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
        *_set_properties(
            {
                OWNERSHIP: _ownership_text(lease),
                WRITTEN: _written(lease, attempt),
                **_behind(lease, has_behind=seen.has_behind),
            },
            seen,
        ),
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
        *_set_properties(
            {WRITTEN: _written(lease, attempt), **_behind(lease, has_behind=seen.has_behind)},
            seen,
        ),
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
    written = _entry(document, WRITTEN, _Written)
    return "" if written is None else written.attempt


def is_foreign(document: Mapping[str, Any]) -> bool:
    """Whether another processor was the last to write to it."""
    ours = _entry(document, OWNERSHIP, _Ownership)
    now = (document.get("Owner"), document.get("timestamp"))
    return ours is None or now != (ours.owner, ours.at)


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
    ours = _entry(document, OWNERSHIP, _Ownership)
    low, high = bounds_in(document)
    lease = Lease(
        range=_feed_range_in(document, ours),
        checkpoint=_checkpoint_in(document),
        **_ownership(document, ours),
    )
    seen = VersionToken(
        etag=document["_etag"],
        epoch=lease.epoch,
        low=low,
        high=high,
        has_properties=isinstance(document.get("properties"), dict),
        has_behind=_entry(document, BEHIND, _Behind) is not None,
    )
    return replace(lease, version=version_of(seen))


def _feed_range_in(document: Mapping[str, Any], ours: _Ownership | None) -> FeedRange:
    low, high = bounds_in(document)
    found = FeedRange(id=_range_in(document), low=low, high=high)
    if ours is None:  # others do not say its generation: what they cut is named by its bounds
        return replace(found, generation=(0, int(is_part(found))))
    return replace(
        found,
        parents=tuple(RangeId(x) for x in ours.parents),
        of=None if ours.sub_range_of is None else RangeId(ours.sub_range_of),
        generation=ours.generation,
    )


def _range_in(document: Mapping[str, Any]) -> RangeId:
    """Return the range of a lease; version 2 of .NET's processor calls it ``PartitionId``."""
    token = document.get("LeaseToken", document.get("PartitionId"))
    if token is None:
        raise StoreRefused(
            f"document {document.get('id')!r} names no range, so it is not a lease: give this "
            f"fleet a prefix, or a container, of its own"
        )
    return RangeId(str(token))


def _checkpoint_in(document: Mapping[str, Any]) -> Checkpoint | None:
    token = document.get("ContinuationToken")
    if token is None:
        return None
    position = Position(raw_token(token) if "feedRange" in document else token)
    behind = _entry(document, BEHIND, _Behind)
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


def timestamp_of(stamp: float | None) -> str | None:
    """Format seconds since 1970 as .NET does, with seven digits."""
    if stamp is None:
        return None
    text = datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")
    assert text.endswith("+00:00"), f".NET compares these as text: {text}"
    return text.removesuffix("+00:00") + "0Z"


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


def _ownership(document: Mapping[str, Any], ours: _Ownership | None) -> dict[str, Any]:
    owner = document.get("Owner")
    if ours is None or is_foreign(document):
        return _by_others(document, ours, HostName(owner) if owner else None)
    written = _entry(document, WRITTEN, _Written) or _Written(of=ours.of)
    return {
        "owner": owner,
        "incarnation": ours.incarnation,
        "epoch": ours.epoch,
        "renewals": ours.renewals,
        "next_owner": ours.next_owner,
        "key_request": ours.key_request,
        "end": ours.end,
        "paused": ours.paused,
        "health": ours.health or NOTHING_KNOWN,
        "deaths": ours.deaths,
        "load": ours.load,
        "cooling": ours.cooling,
        "stamp": ours.stamp,
        "checkpoint_epoch": written.checkpoint_epoch,
        "write_id": written.write_id,
    }


def _by_others(
    document: Mapping[str, Any], ours: _Ownership | None, owner: HostName | None
) -> dict[str, Any]:
    """Return what another processor has made of it since we last wrote, if we ever did.

    Its stamp moves with each of its writes, so that is its sign of life. Whatever it had
    to do with a request or a pause of ours, it does not know of them.
    """
    stamp = stamp_in(document)
    written = document.get("timestamp") is not None or owner is not None
    epoch = int(written)
    if ours is not None:
        # It may go on in an epoch that we have already given it.
        same = ours.incarnation is None and ours.owner is not None and ours.owner == owner
        epoch = ours.epoch + (0 if same else 1)
    return {
        "owner": owner,
        "epoch": epoch,
        "renewals": int((stamp or 0) * 1_000_000),
        "end": None if ours is None else ours.end,
        "paused": None if ours is None else ours.paused,
        "stamp": stamp,
        "checkpoint_epoch": epoch if written and started(document) else 0,
    }


def _entry(document: Mapping[str, Any], name: str, kind: type[Entry]) -> Entry | None:
    properties = document.get("properties")
    text = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(text, str):
        return None
    try:
        entry = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise StoreRefused(
            f"lease {document.get('id')!r} has an entry {name!r} in its properties that "
            f"cannot be read ({error}): it was written by a newer version of this program, "
            "or changed by hand. Upgrade this host, or delete the entry while no host runs"
        ) from error
    return entry if entry.of == _range_in(document) else None


def _ownership_text(lease: Lease) -> str:
    return _text(
        _Ownership(
            of=lease.range_id,
            owner=lease.owner,
            at=timestamp_of(lease.stamp),
            incarnation=lease.incarnation,
            epoch=lease.epoch,
            renewals=lease.renewals,
            next_owner=lease.next_owner,
            key_request=lease.key_request,
            end=lease.end,
            paused=lease.paused,
            health=None if lease.health == NOTHING_KNOWN else lease.health,
            deaths=lease.deaths,
            load=lease.load,
            cooling=lease.cooling,
            stamp=lease.stamp,
            parents=lease.range.parents,
            sub_range_of=lease.range.of,
            generation=lease.range.generation,
        )
    )


def _written(lease: Lease, attempt: str) -> str:
    return _text(
        _Written(
            of=lease.range_id,
            attempt=attempt,
            write_id=lease.write_id,
            checkpoint_epoch=lease.checkpoint_epoch,
        )
    )


def _behind(lease: Lease, *, has_behind: bool) -> dict[str, str]:
    """Return the entry of what is done behind a position, where there is any, or was."""
    checkpoint = lease.checkpoint
    if checkpoint is None or (checkpoint.high is None and not has_behind):
        return {}
    text = "" if checkpoint.high is None else checkpoint.text
    return {BEHIND: _text(_Behind(lease.range_id, text))}


def _text(entry: _Ownership | _Written | _Behind) -> str:
    return msgspec.json.encode(entry).decode()


def _set_properties(entries: Mapping[str, str], seen: VersionToken) -> Sequence[Operation]:
    assert entries.keys() <= {OWNERSHIP, WRITTEN, BEHIND}, f"{entries.keys()} are not all ours"
    if seen.has_properties:
        return [_set(f"/properties/{name}", text) for name, text in entries.items()]
    return [_set("/properties", dict(entries))]


def _set(path: str, value: Any) -> Operation:
    return {"op": "set", "path": path, "value": value}


def _feed_range(feed_range: FeedRange) -> Document:
    return {"Range": {"min": feed_range.low, "max": feed_range.high}}
