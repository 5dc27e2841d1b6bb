"""Finding where a batch ends that may have so many changes: by reading up to there."""

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from changefeed.feeds.feed import FeedRange, Position, RangeEnded
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import Step, StepResult
from changefeed.pipeline.source.retries import RetryingFeed

PAGE: Final = 10_000
"""Changes that are asked for at once, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSeen:
    """A page that was read to be counted. ``position`` is that behind one of its changes."""

    sequences: Sequence[int]
    position: Callable[[int], Position]
    end: Position


async def read_changes(
    feed: RetryingFeed, found: FeedRange, after: Position, limit: int
) -> PageSeen:
    """Read a page to count it."""
    page = await feed.read(found, after, limit)
    positions = {x.sequence: x for x in page.changes}
    return PageSeen(
        sequences=[x.sequence for x in page.changes],
        position=lambda sequence: feed.position_after(positions[sequence]),
        end=page.position,
    )


async def counted(
    read: Callable[[Position, int], Awaitable[PageSeen]],
    order_of_positions: PositionOrder,
    step: Step,
) -> StepResult:
    """Read so many changes, and return the position behind the last of them."""
    assert step.count is not None, "without a count there is nothing to count"
    at, done = step.after, 0
    while done < step.count:
        room = step.count - done
        try:
            page = await read(at, min(PAGE, room))
        except RangeEnded:
            break
        within = _within(page.sequences, order_of_positions, step.until)
        if len(within) > room:
            exceed = step.exceed and done == 0
            stop = _stop(page, order_of_positions, within, room, exceed=exceed)
            if stop:
                at, done = page.position(within[stop - 1]), done + stop
            break
        if not within:
            break
        done += len(within)
        if len(within) < len(page.sequences):
            assert step.until is not None, "nothing else can leave out the end of a page"
            at = step.until
            break
        at = page.end
    return StepResult(at=at, changes=done)


def _within(
    sequences: Sequence[int], order_of_positions: PositionOrder, until: Position | None
) -> Sequence[int]:
    if until is None:
        return sequences
    return sequences[: bisect_right(sequences, order_of_positions.order(until))]


def _stop(
    page: PageSeen,
    order_of_positions: PositionOrder,
    sequences: Sequence[int],
    room: int,
    *,
    exceed: bool,
) -> int:
    """Return how many changes end with a whole transaction and fit; or, to ``exceed``,
    how many the first transaction has.
    """
    ends = [
        n
        for n, x in enumerate(sequences, start=1)
        if order_of_positions.order(page.position(x)) >= x
    ]
    fitting = [n for n in ends if n <= room]
    if fitting:
        return fitting[-1]
    return ends[0] if exceed and ends else 0
