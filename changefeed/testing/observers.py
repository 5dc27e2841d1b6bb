"""Calling an observer without a host: changes to give it, and what it did with them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from changefeed.feeds.feed import Change, FeedRange, Operation, Position, RangeId
from changefeed.leases.checkpoint import Checkpoint, Progress
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import CloseReason

_NEW_YEAR_US = 1_767_225_600_000_000
_NOTHING = Position("")


@dataclass(kw_only=True)
class RecordingContext:
    """What an observer is given as ``context``: it records what the observer says.

    ``checkpoints`` and ``acknowledged`` are sequences, in the order in which they were said.
    """

    range: FeedRange = field(default_factory=lambda: FeedRange(id=RangeId("r1")))
    host: str = "anna"
    epoch: int = 1
    handing_over: bool = False
    reset_epoch: int = 0
    checkpoints: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    flushes: int = 0

    def checkpoint(self, change: Change) -> None:
        self.checkpoints.append(change.sequence)

    def checkpoint_with(self, _: object) -> None:
        """Say that nothing keeps it."""

    def acknowledge(self, change: Change) -> None:
        self.acknowledged.append(change.sequence)

    async def flush(self) -> None:
        self.flushes += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """What became of the changes that an observer was called with.

    ``changes`` are those it was called with, ``failure`` is what it raised; after that it was
    not called again, but to be closed. ``done_up_to`` is the sequence up to which everything is
    done, as a checkpoint would store it, and ``None`` if that is nothing.
    """

    changes: Sequence[Change]
    failure: BaseException | None
    done_up_to: int | None
    acknowledged: Sequence[int]
    checkpoints: Sequence[int]

    @property
    def unfinished(self) -> Sequence[Change]:
        """The changes that would be delivered again, if the host died now."""
        done = -1 if self.done_up_to is None else self.done_up_to
        return [x for x in self.changes if x.sequence > done]


async def deliver(
    observer: Any,
    changes: Iterable[Change],
    *,
    options: Mapping[str, object] | None = None,
    batch_size: int = 1000,
    manual: bool = False,
    context: RecordingContext | None = None,
    reason: CloseReason = CloseReason.STOPPING,
) -> DeliveryResult:
    """Call an observer as a host does: open it, hand it the changes in order, and close it.

    ``observer`` is a class or a function, as for ``open_host``, and ``options`` are the
    arguments of its constructor. All changes must be of one range. ``manual`` is for an
    observer that acknowledges by itself (``observer.checkpoint`` is ``manual``); for any other,
    what it returned from is done. Nothing is tried again and nothing is put aside. An observer
    that fails is closed with ``FAILED``, any other with ``reason``.

    Raise ``UserError`` for what no host could call, and ``ValueError`` for an
    acknowledgement of what was not delivered, as in a host.
    """
    ordered = list(changes)
    context = context or RecordingContext(range=_range_of(ordered))
    counted = _CountingContext(context, manual=manual)
    called = adapt(observer, options)()
    given: list[Change] = []
    failure: BaseException | None = None
    try:
        await called.open(counted)
        for first in range(0, len(ordered), batch_size):
            batch = ordered[first : first + batch_size]
            given += batch
            counted.deliver(batch)
            await called.process(counted, batch)
            counted.returned(batch)
    except Exception as error:  # noqa: BLE001 - what it raises is what is asked for
        failure = error
    await called.close(counted, reason if failure is None else CloseReason.FAILED)
    return DeliveryResult(
        changes=given,
        failure=failure,
        done_up_to=counted.watermark,
        acknowledged=context.acknowledged,
        checkpoints=context.checkpoints,
    )


class _CountingContext:
    """Passes on to the recording context, and counts as a worker counts."""

    def __init__(self, inner: RecordingContext, *, manual: bool) -> None:
        self._inner = inner
        self._manual = manual
        self._progress = Progress(Checkpoint(_NOTHING), lambda x: Position(str(x.sequence)))

    @property
    def watermark(self) -> int | None:
        """Up to which sequence all is done."""
        position = self._progress.checkpoint({}).position
        return None if position == _NOTHING else int(position)

    @property
    def range(self) -> FeedRange:
        return self._inner.range

    @property
    def host(self) -> str:
        return self._inner.host

    @property
    def epoch(self) -> int:
        return self._inner.epoch

    @property
    def handing_over(self) -> bool:
        return self._inner.handing_over

    @property
    def reset_epoch(self) -> int:
        return self._inner.reset_epoch

    def checkpoint_with(self, _: object) -> None:
        """Say that nothing keeps it."""

    def deliver(self, batch: Sequence[Change]) -> None:
        self._progress.read(batch, None)

    def returned(self, batch: Sequence[Change]) -> None:
        if not self._manual:
            self._progress.done(batch)

    def checkpoint(self, change: Change) -> None:
        self._inner.checkpoint(change)
        self._count(change, up_to=True)

    def acknowledge(self, change: Change) -> None:
        self._inner.acknowledge(change)
        self._count(change, up_to=False)

    async def flush(self) -> None:
        await self._inner.flush()

    def _count(self, change: Change, *, up_to: bool) -> None:
        known = self._progress.was_read(change)
        if change.range_id not in {self.range.id, self.range.whole} or not known:
            raise ValueError(
                f"change {change.sequence} of range {change.range_id!r} was not delivered to "
                f"the observer of range {self.range.id!r}, so it cannot be done"
            )
        before = [x for x in self._progress.open if x.sequence <= change.sequence]
        self._progress.done(before if up_to else [change])


def make_changes(*given: tuple[str, Any], range_id: str = "r1", begin: int = 1) -> list[Change]:
    """Make inserts of one range of ``(key, value)``, numbered from ``begin``.

    A value is anything that JSON can say; ``None`` makes a delete without an image.
    """
    return [
        Change(
            range_id=RangeId(range_id),
            sequence=begin + n,
            key=key,
            id=key,
            operation=Operation.DELETE if value is None else Operation.INSERT,
            body=b"" if value is None else msgspec.json.encode(value),
            committed_us=_NEW_YEAR_US + begin + n,
        )
        for n, (key, value) in enumerate(given)
    ]


def _range_of(changes: Sequence[Change]) -> FeedRange:
    ranges = {x.range_id for x in changes}
    if len(ranges) > 1:
        raise ValueError(f"an observer sees one range; these changes are of {sorted(ranges)}")
    return FeedRange(id=next(iter(ranges), RangeId("r1")))
