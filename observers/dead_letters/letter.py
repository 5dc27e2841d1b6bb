"""What is kept of a change that was put aside, and what is asked of the place it is kept in.

A letter carries the whole change, so that it can be read, and given to an observer again,
when the feed has long forgotten it. There is no position in the feed in it: the identity
of the feed, range and sequence name the change for good, and nothing is read from the feed
to replay it. Each fleet has a letter of its own, as each has to handle the change.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, NewType, Protocol

import msgspec

from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Change, Operation, RangeId
from changefeed.observers.error_text import kind_of, text_of, trace_of
from changefeed.runtime.errors import Failure, StoreMissing

LetterId = NewType("LetterId", str)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TRACE_LINES = 30
_TRACE_LENGTH = 4000
_MAX_TEXT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who puts changes aside: the fleets that share a place have a letter each for a change.

    ``feed`` is what distinguishes its changes from those of all other feeds
    (``Feed.identity``), ``observer`` the name that the settings have for the observer.
    ``fleet`` is where the fleet keeps its leases, alike on all its hosts; on Spark, where the
    query keeps its checkpoint.
    """

    feed: str
    observer: str = ""
    fleet: str = ""

    def __post_init__(self) -> None:
        assert self.feed, "letters of several feeds may lie in one place"


class LetterError(msgspec.Struct, frozen=True, kw_only=True):
    """What the observer raised: the type's name, its text, and the end of the traceback."""

    kind: str
    text: str
    trace: str


class LetterHead(msgspec.Struct, frozen=True, kw_only=True):
    """A letter without what may be long: the body of its change, and the traceback.

    ``key`` and ``change_id`` are those of the change, cut after 1,000 characters and without
    NUL. ``kind`` and ``error`` are what the observer raised.
    """

    id: LetterId
    feed: str
    observer: str
    fleet: str
    range_id: RangeId
    sequence: int
    key: str
    change_id: str
    operation: Operation
    committed_at: datetime
    failed_at: datetime
    host: str
    epoch: int
    attempts: int
    kind: str
    error: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was put aside, and why.

    ``feed``, ``observer`` and ``fleet`` are as in ``Origin``. ``attempts`` is how often the
    change was tried alone; ``epoch`` is that of the lease at the time. ``failed_us`` is
    wall-clock time, microseconds since 1970, UTC.
    """

    change: Change
    failure: LetterError
    attempts: int
    host: str
    epoch: int
    failed_us: Annotated[int, msgspec.Meta(ge=MIN_TIME_US, le=MAX_TIME_US)]
    feed: str
    observer: str
    fleet: str

    @property
    def id(self) -> LetterId:
        """Name the letter for good: there is one for each change, observer and fleet.

        Eight digits for where it comes from, the range and the sequence: ``5ab01c4f:r0:17``.
        """
        mark = hashlib.blake2b(_origin_of(self), digest_size=4).hexdigest()
        return LetterId(f"{mark}:{self.range_id}:{self.sequence}")

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
        return _EPOCH + timedelta(microseconds=self.failed_us)

    @property
    def head(self) -> LetterHead:
        return LetterHead(
            id=self.id,
            feed=self.feed,
            observer=self.observer,
            fleet=self.fleet,
            range_id=self.range_id,
            sequence=self.sequence,
            key=_bounded(self.key),
            change_id=_bounded(self.change.id),
            operation=self.change.operation,
            committed_at=self.change.committed_at,
            failed_at=self.failed_at,
            host=self.host,
            epoch=self.epoch,
            attempts=self.attempts,
            kind=self.failure.kind,
            error=self.failure.text,
        )


class DeadLetters(Protocol):
    """Keeps letters. Many tasks, and other processes, may use the same place at once.

    Any fleets may share it. Every method raises ``OSError`` when it could not be
    done; it may be tried again.
    """

    async def put(self, letter: DeadLetter) -> None:
        """Keep a letter: once this has returned, it outlives the process and the machine.

        If there is one for the same change already, that one stays. If there is one for
        another change under this id, raise ``Failure`` and keep that one: neither may
        replace the other, and a person decides which one stays.
        """
        ...

    async def list(self) -> Sequence[LetterHead]:
        """Return the heads of all letters, by range, then by sequence, then by id."""
        ...

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        """Return a letter whole, or ``None`` if there is none."""
        ...

    async def remove(self, letter_id: LetterId) -> bool:
        """Forget a letter; say whether it was there."""
        ...


def _origin_of(letter: DeadLetter) -> bytes:
    """Return what the digits of a letter are made of."""
    return msgspec.json.encode((letter.feed, letter.observer, letter.fleet))


def failure_of(error: BaseException) -> LetterError:
    """Describe an error, of a length that can be kept."""
    lines = trace_of(error).splitlines()
    return LetterError(
        kind=kind_of(error),
        text=text_of(error),
        trace="\n".join(lines[-_TRACE_LINES:])[-_TRACE_LENGTH:],
    )


def check_same_change(letter: DeadLetter, kept: DeadLetter, place: str) -> None:
    """Raise ``Failure`` if what is kept under the letter's id is another change."""
    if (_origin_of(kept), kept.change) != (_origin_of(letter), letter.change):
        raise Failure(
            f"{place} holds another change under the id {letter.id}, and neither may replace "
            f"the other: two feeds have one identity here, or one was put back to an older "
            f"copy. Look at it with: changefeed dead-letters show; then discard or replay it, "
            f"or give this feed another place (observer.dead_letters)"
        )


def in_order(head: LetterHead) -> tuple[str, int, str]:
    return head.range_id, head.sequence, head.id


def _bounded(text: str) -> str:
    """Return a text that a feed may make as long as it likes as a listing shows it."""
    return text.replace("\0", "")[:_MAX_TEXT]


def no_letters(place: str) -> StoreMissing:
    """Return the error of those who must not make the place, where it is not there."""
    return StoreMissing(
        f"there are no dead letters at {place} (observer.dead_letters): no host has put any "
        "there; or check the name"
    )
