"""Leases as a document, to carry them to where another program makes them again.

Reading checks its form; whether a feed can be read so is for
``changefeed.fleet.position_checks``.

It says where each range is to be read from; who reads it creates leases
there that no host owns yet.
"""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.leases.checkpoint import MAX_HOLES, Checkpoint, Hole
from changefeed.leases.lease import Lease, RangeEnd, require_checkpoint
from changefeed.runtime.errors import StoreRefused

FORMAT: Final = 1
_MAX_NUMBER: Final = 2**53 - 1
"""What no store of leases keeps as another number."""

_Epoch = Annotated[int, msgspec.Meta(ge=0, le=_MAX_NUMBER)]
_Name = Annotated[RangeId, msgspec.Meta(min_length=1)]


class _Versioned(msgspec.Struct, frozen=True):
    """What a document of any format says."""

    format: int


class PositionEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One range: up to where it is done, under which epoch, and what it has ended in.

    Behind the position all up to the sequence ``done_up_to`` is done, but the ``holes``, as in
    a checkpoint. Who moves the position takes both out.
    """

    range: _Name
    position: Position
    done_up_to: int | None = None
    holes: Annotated[tuple[Hole, ...], msgspec.Meta(max_length=MAX_HOLES)] = ()
    low: str = ""
    high: str = ""
    parents: tuple[_Name, ...] = ()
    of: _Name | None = None
    generation: tuple[int, int] = (0, 0)
    end: RangeEnd | None = None
    epoch: _Epoch = 0
    paused: str | None = None


class Positions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document. ``feed`` is the identity of the feed that the positions are in, and
    ``saved_at`` when they were read; empty in a document that does not say.
    """

    positions: tuple[PositionEntry, ...]
    format: int
    feed: str = ""
    saved_at: str = ""

    @property
    def leases(self) -> Sequence[Lease]:
        return [_lease(x) for x in self.positions]


def written(leases: Sequence[Lease], *, feed: str = "", saved_at: str = "") -> bytes:
    """Return leases, which must carry their positions, as a document."""
    assert len({x.range_id for x in leases}) == len(leases), "each range has one position"
    document = Positions(
        positions=tuple(_position(x) for x in leases),
        format=FORMAT,
        feed=feed,
        saved_at=saved_at,
    )
    return msgspec.json.format(msgspec.json.encode(document))


def read(document: bytes) -> Sequence[Lease]:
    """Return what ``written`` was given. Raise ``StoreRefused`` for anything else."""
    return read_document(document).leases


def read_document(document: bytes) -> Positions:
    """As ``read``, with what the document says of itself."""
    try:
        found = msgspec.json.decode(document, type=_Versioned).format
        if found == FORMAT:
            return msgspec.json.decode(document, type=Positions)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreRefused(
            f"this is not a file of positions ({error}): changefeed positions export writes one"
        ) from error
    advice = "upgrade changefeed-host" if found > FORMAT else "save the positions again"
    raise StoreRefused(
        f"this is a file of positions in format {found}, and this version of "
        f"changefeed-host reads format {FORMAT} only: {advice}"
    )


def _position(lease: Lease) -> PositionEntry:
    checkpoint = require_checkpoint(lease)
    return PositionEntry(
        range=lease.range_id,
        position=checkpoint.position,
        done_up_to=checkpoint.high,
        holes=checkpoint.holes,
        low=lease.range.low,
        high=lease.range.high,
        parents=lease.range.parents,
        of=lease.range.of,
        generation=lease.range.generation,
        end=lease.end,
        epoch=lease.epoch,
        paused=lease.paused,
    )


def _lease(x: PositionEntry) -> Lease:
    return Lease(
        range=FeedRange(
            id=x.range,
            low=x.low,
            high=x.high,
            parents=x.parents,
            of=x.of,
            generation=x.generation,
        ),
        checkpoint=Checkpoint(x.position, x.done_up_to, x.holes),
        end=x.end,
        epoch=x.epoch,
        paused=x.paused,
        checkpoint_epoch=x.epoch,
    )
