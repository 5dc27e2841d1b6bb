"""The errors of observers, one for each thing the caller does about it. One that cannot be used
as it is, is refused with a ``UserError``.

ObserverFailed     it raised as often as it was allowed to: the changes are not done
ObserverStuck      a call of it never ends: only a fresh process can help
AttemptFailed      it raised in one attempt, or took too long; it may be repeated
"""

from collections import deque
from collections.abc import Iterator

from changefeed.feeds.feed import RangeId
from changefeed.runtime.errors import Failure

_MAX_ERRORS = 1000  # of one failure that are looked at


class ObserverFailed(Failure):
    """It raised on every attempt. The last error is the cause.

    ``sequences`` are the first and the last of the batch; ``None`` if it failed to open.
    """

    def __init__(
        self,
        range_id: RangeId,
        sequences: tuple[int, int] | None,
        attempts: int,
        reason: str,
    ) -> None:
        super().__init__(range_id, sequences, attempts, reason)  # so that it pickles
        self.range_id = range_id
        self.sequences = sequences
        self.attempts = attempts
        self.reason = reason

    def __str__(self) -> str:
        where = f"range {self.range_id!r}"
        if self.sequences is None:
            what = f"to open {where}"
        else:
            what = "on sequences {}..{} of ".format(*self.sequences) + where
        times = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        return f"the observer failed {what}, {times}: {self.reason}"


class ObserverStuck(Failure):
    """A call has ended neither in its time nor when it was cancelled, and was left behind.

    It may go on in its thread: the observer must not be called again, not even to close,
    and what it was given must not be given up to others in an orderly way.
    """

    def __init__(self, range_id: RangeId, call: str, seconds: float) -> None:
        super().__init__(range_id, call, seconds)
        self.range_id = range_id
        self.call = call
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"the observer of range {self.range_id!r} is stuck: {self.call!r} did not end "
            f"within {self.seconds:g} s and cannot be interrupted. Bound what it waits for (a "
            f"socket without a timeout, a lock), or give it longer (observer.timeout)"
        )


class AttemptFailed(Exception):
    """What the user's code has raised in one attempt is the cause; it may be anything. Without
    a cause, the attempt was ended because it took too long.

    ``kind`` and ``text`` describe it, as plain text: its class, and what it says if it can.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind

    @classmethod
    def after(cls, call: str, seconds: float) -> "AttemptFailed":
        text = f"{call!r} did not end within {seconds:g} s (observer.timeout)"
        return cls(TimeoutError.__name__, text)


def out_of_memory(range_id: RangeId, reason: str) -> Failure:
    """Say that it ran out of memory on every attempt, and this process may be what leaks."""
    return Failure(
        f"the observer of range {range_id!r} ran out of memory: {reason}. The range is given "
        f"up and the host ends, so that a fresh process goes on; give it more memory, or "
        f"smaller batches (feed.page_size)"
    )


def came_of(error: BaseException, kind: type[BaseException]) -> bool:
    """Return whether there is an error of a kind in it: in a group, or as what it came of."""
    left, seen = deque([error]), set[int]()
    try:
        while left and len(seen) < _MAX_ERRORS:
            one = left.popleft()
            if isinstance(one, kind):
                return True
            if id(one) not in seen:
                seen.add(id(one))
                left.extend(_within(one))
    except BaseException:  # noqa: BLE001 - the border to the user's code
        return False
    return False


def _within(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors that a traceback shows with it."""
    if isinstance(error, BaseExceptionGroup):
        yield from error.exceptions
    if error.__cause__ is not None:
        yield error.__cause__
    elif error.__context__ is not None and not error.__suppress_context__:
        yield error.__context__
