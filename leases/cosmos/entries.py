"""What is ours alone in a lease document: JSON text in entries of its ``properties``.

One entry is about ownership, another about the last write and the checkpoint. A third, where
there was ever need for it, has what is done behind the position. Each names its range: when
.NET splits a range it copies the properties of the parent into the children, where ours count
for nothing.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.leases.lease import Lease, WriteId
from changefeed.runtime.errors import StoreRefused

OWNERSHIP, WRITTEN, BEHIND = "changefeed", "changefeed-written", "changefeed-behind"
"""The entries of ``properties`` that are ours."""
_ELSEWHERE = {"low", "high", "checkpoint", "checkpoint_epoch", "write_id", "version"}
"""Fields of a lease and its range that lie in ``WRITTEN``, or where all processors read."""
_UNSET: Mapping[str, Any] = msgspec.to_builtins(Lease(range=FeedRange(id=RangeId(""))))


class Ownership(msgspec.Struct, frozen=True, omit_defaults=True):
    """A lease as it was written, but for what is elsewhere in its document. ``at`` repeats what
    was written as ``timestamp``.
    """

    lease: Lease
    at: str | None = None

    @property
    def of(self) -> str:
        return self.lease.range_id


class WriteEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our last write to the range ``of``; ``attempt`` is new for every try to write."""

    of: str
    attempt: str = ""
    write_id: WriteId | None = None
    checkpoint_epoch: int = 0


class CheckpointEntry(msgspec.Struct, frozen=True):
    """The text of a checkpoint of the range ``of``; empty if its position says all."""

    of: str
    checkpoint: str


Entry = TypeVar("Entry", Ownership, WriteEntry, CheckpointEntry)


def entry(document: Mapping[str, Any], name: str, kind: type[Entry]) -> Entry | None:
    """Return an entry of ours, if there is one that is about the range of the document."""
    properties = document.get("properties")
    text = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(text, str):
        return None
    try:
        found = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, ValueError) as error:
        raise StoreRefused(
            f"lease {document.get('id')!r} has an entry {name!r} in its properties that "
            f"cannot be read ({error}): it was written by a newer version of this program, "
            "or changed by hand. Upgrade this host, or delete the entry while no host runs"
        ) from error
    return found if found.of == range_in(document) else None


def range_in(document: Mapping[str, Any]) -> RangeId:
    """Return the range of a lease; version 2 of .NET's processor calls it ``PartitionId``."""
    token = document.get("LeaseToken", document.get("PartitionId"))
    if token is None:
        raise StoreRefused(
            f"document {document.get('id')!r} names no range, so it is not a lease: give this "
            f"fleet a prefix, or a container, of its own"
        )
    return RangeId(str(token))


def checkpoint_entries(lease: Lease, attempt: str, *, has_behind: bool) -> dict[str, str]:
    """Return what a checkpoint writes: what is done behind a position, where there is any, or
    was.
    """
    written = WriteEntry(
        of=lease.range_id,
        attempt=attempt,
        write_id=lease.write_id,
        checkpoint_epoch=lease.checkpoint_epoch,
    )
    found, checkpoint = {WRITTEN: _text(written)}, lease.checkpoint
    if checkpoint is not None and (checkpoint.high is not None or has_behind):
        text = "" if checkpoint.high is None else checkpoint.text
        found[BEHIND] = _text(CheckpointEntry(lease.range_id, text))
    return found


def all_entries(lease: Lease, attempt: str, *, has_behind: bool) -> dict[str, str]:
    """Return what any other write of a lease writes."""
    fields = _own_fields(msgspec.to_builtins(lease), _UNSET)
    ownership = {"lease": fields, "at": timestamp_of(lease.stamp)}
    checkpoint = checkpoint_entries(lease, attempt, has_behind=has_behind)
    return {OWNERSHIP: _text(ownership), **checkpoint}


def _own_fields(fields: Mapping[str, Any], unset: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is elsewhere or says nothing: each byte of a renewal is paid for."""
    return {
        x: _own_fields(y, unset[x]) if x == "range" else y
        for x, y in fields.items()
        if x not in _ELSEWHERE and (x in ("range", "id") or y != unset[x])
    }


def _text(entry: object) -> str:
    return msgspec.json.encode(entry).decode()


def timestamp_of(stamp: float | None) -> str | None:
    """Format seconds since 1970 as .NET does, with seven digits."""
    if stamp is None:
        return None
    text = datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")
    assert text.endswith("+00:00"), f".NET compares these as text: {text}"
    return text.removesuffix("+00:00") + "0Z"
