"""Leases as a document, to carry them to where another program makes them again.

It says where each range is to be read from; who reads it creates leases
there that no host owns yet.
"""

from collections.abc import Sequence

import msgspec

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Lease
from changefeed.leases.stores import require_continuation


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One range: up to where it is done, and under which epoch."""

    range: RangeId
    continuation: Continuation
    low: str = ""
    high: str = ""
    parents: tuple[RangeId, ...] = ()
    ended: bool = False
    epoch: int = 0


class Positions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document."""

    positions: tuple[Position, ...]


def written(leases: Sequence[Lease]) -> bytes:
    """Return leases, which must carry their continuations, as a document."""
    document = Positions(positions=tuple(_position(x) for x in leases))
    return msgspec.json.format(msgspec.json.encode(document))


def read(document: bytes) -> Sequence[Lease]:
    """Return what ``written`` was given. Raise ``ContainerRefused`` for anything else."""
    try:
        found = msgspec.json.decode(document, type=Positions)
    except msgspec.DecodeError as error:
        raise ContainerRefused(
            f"this is no document of positions ({error}): changefeed pipeline export writes one"
        ) from error
    return [_lease(x) for x in found.positions]


def _position(lease: Lease) -> Position:
    return Position(
        range=lease.range_id,
        continuation=require_continuation(lease),
        low=lease.range.low,
        high=lease.range.high,
        parents=lease.range.parents,
        ended=lease.ended,
        epoch=lease.epoch,
    )


def _lease(x: Position) -> Lease:
    return Lease(
        range=FeedRange(id=x.range, low=x.low, high=x.high, parents=x.parents),
        continuation=x.continuation,
        ended=x.ended,
        epoch=x.epoch,
        checkpoint_epoch=x.epoch,
    )
