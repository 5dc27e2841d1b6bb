"""What is kept of a change that was put aside, and what is asked of the place it is kept in.

A letter carries the whole change, so that it can be read, and given to an observer again,
when the feed has long forgotten it. There is no position in the feed in it: range and
sequence name the change for good, and nothing is read from the feed to replay it.
"""

import traceback
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NewType, Protocol

import msgspec

from changefeed.feeds.feed import Change, RangeId

LetterId = NewType("LetterId", str)

_TRACE_LINES = 30
_TEXT_LENGTH = 4000


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What the observer raised: the type's name, its text, and the end of the traceback."""

    kind: str
    text: str
    trace: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was put aside, and why.

    ``attempts`` is how often the change was tried alone; ``epoch`` is that of the lease
    at the time. ``failed_us`` is wall-clock time, microseconds since 1970, UTC.
    """

    change: Change
    failure: Failure
    attempts: int
    host: str
    epoch: int
    failed_us: int

    @property
    def id(self) -> LetterId:
        """Name the letter for good: there is one for each change."""
        return LetterId(f"{self.range_id}:{self.sequence}")

    @property
    def range_id(self) -> RangeId:
        return self.change.range_id

    @property
    def sequence(self) -> int:
        return self.change.sequence

    @property
    def key(self) -> str:
        return self.change.key

    @property
    def failed_at(self) -> datetime:
        return datetime.fromtimestamp(self.failed_us / 1_000_000, UTC)


class DeadLetters(Protocol):
    """Keeps letters. Many tasks, and other processes, may use the same place at once.

    Every method raises ``OSError`` when it could not be done; it may be tried again.
    """

    async def put(self, letter: DeadLetter) -> None:
        """Keep a letter: once this has returned, it outlives the process and the machine.

        If there is one for the same change already, that one stays.
        """
        ...

    async def list(self) -> Sequence[DeadLetter]:
        """Return all letters, by range and then by sequence."""
        ...

    async def get(self, letter_id: LetterId) -> DeadLetter | None: ...

    async def remove(self, letter_id: LetterId) -> bool:
        """Forget a letter; say whether it was there."""
        ...


def failure_of(error: BaseException) -> Failure:
    """Describe an error, of a length that can be kept."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return Failure(
        kind=type(error).__name__,
        text=str(error)[:_TEXT_LENGTH],
        trace="\n".join(lines[-_TRACE_LINES:])[-_TEXT_LENGTH:],
    )


def in_order(letter: DeadLetter) -> tuple[str, int]:
    return letter.range_id, letter.sequence
