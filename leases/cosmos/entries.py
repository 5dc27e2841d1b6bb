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

from changefeed.feeds.feed import RangeId
from changefeed.leases.deaths import NO_DEATHS, Deaths
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth
from changefeed.leases.lease import End, KeyRequest, Lease
from changefeed.runtime.errors import StoreRefused

OWNERSHIP, WRITTEN, BEHIND = "changefeed", "changefeed-written", "changefeed-behind"
"""The entries of ``properties`` that are ours."""


class Ownership(msgspec.Struct, frozen=True, omit_defaults=True):
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
    reset_epoch: int = 0
    stamp: float | None = None
    parents: tuple[str, ...] = ()
    sub_range_of: str | None = None
    generation: tuple[int, int] = (0, 0)


class Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """Our last write to the range ``of``; ``attempt`` is new for every try to write."""

    of: str
    attempt: str = ""
    write_id: str | None = None
    checkpoint_epoch: int = 0


class Behind(msgspec.Struct, frozen=True):
    """The text of a checkpoint of the range ``of``; empty if its position says all."""

    of: str
    checkpoint: str


Entry = TypeVar("Entry", Ownership, Written, Behind)


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
    written = Written(
        of=lease.range_id,
        attempt=attempt,
        write_id=lease.write_id,
        checkpoint_epoch=lease.checkpoint_epoch,
    )
    found, checkpoint = {WRITTEN: _text(written)}, lease.checkpoint
    if checkpoint is not None and (checkpoint.high is not None or has_behind):
        text = "" if checkpoint.high is None else checkpoint.text
        found[BEHIND] = _text(Behind(lease.range_id, text))
    return found


def all_entries(lease: Lease, attempt: str, *, has_behind: bool) -> dict[str, str]:
    """Return what any other write of a lease writes."""
    ownership = Ownership(
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
        reset_epoch=lease.reset_epoch,
        stamp=lease.stamp,
        parents=lease.range.parents,
        sub_range_of=lease.range.of,
        generation=lease.range.generation,
    )
    checkpoint = checkpoint_entries(lease, attempt, has_behind=has_behind)
    return {OWNERSHIP: _text(ownership), **checkpoint}


def _text(entry: Ownership | Written | Behind) -> str:
    return msgspec.json.encode(entry).decode()


def timestamp_of(stamp: float | None) -> str | None:
    """Format seconds since 1970 as .NET does, with seven digits."""
    if stamp is None:
        return None
    text = datetime.fromtimestamp(stamp, UTC).isoformat(timespec="microseconds")
    assert text.endswith("+00:00"), f".NET compares these as text: {text}"
    return text.removesuffix("+00:00") + "0Z"
