"""Changes to observe, and a context that only remembers."""

from dataclasses import dataclass, field

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId


@dataclass(kw_only=True)
class RememberingContext:
    """What an observer is told, without a host: it keeps the checkpoints it is given."""

    range: FeedRange = field(default_factory=lambda: FeedRange(id=RangeId("r1")))
    host: str = "anna"
    epoch: int = 1
    handing_over: bool = False
    checkpoints: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)

    def checkpoint(self, change: Change) -> None:
        self.checkpoints.append(change.sequence)

    def acknowledge(self, change: Change) -> None:
        self.acknowledged.append(change.sequence)

    async def flush(self) -> None:
        """Have nothing to wait for."""


def on_range(name: str) -> RememberingContext:
    return RememberingContext(range=FeedRange(id=RangeId(name)))


def change(
    sequence: int,
    *,
    operation: Operation = Operation.INSERT,
    body: bytes = b'{"n":1}',
    range_id: str = "r1",
    key: str = "k",
) -> Change:
    return Change(
        range_id=RangeId(range_id),
        sequence=sequence,
        key=key,
        id=f"id-{sequence}",
        operation=operation,
        body=body,
        committed_us=1_700_000_000_000_000 + sequence,
    )
