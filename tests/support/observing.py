"""Changes to observe, and a context that only remembers."""

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.testing.observers import RecordingContext as RememberingContext

__all__ = ["RememberingContext", "change", "on_range"]


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
