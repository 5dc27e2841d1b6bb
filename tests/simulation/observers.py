"""The observers of the hosts: they take their time, fail, hang, and are late, by chance.

They tell the checker all they do. What is a failure of theirs must never be one of a host.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import Final

from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.dead_letters.letter import DeadLetter
from changefeed.observers.dead_letters.memory import MemoryDeadLetters
from changefeed.observers.error_text import kind_of
from changefeed.observers.observer import CloseReason, Context
from tests.support.observers import cancelled_by_itself

from .checkers import Call
from .probes import Probe
from .progress import Violation
from .scout import Scout

_SLOWEST = 5.0  # seconds for a page: twice that is within the shortest time limit
_MOST_CUTS = 3  # of a batch that is done in pieces
_SOON = 1.0  # seconds in which what is done of it is said at the latest
_POISON = 29  # one change of so many fails for ever, where it may be put aside


class Unspeakable(Exception):
    """An error that raises when its text is asked for."""

    def __str__(self) -> str:
        raise RuntimeError("an error without a text")


class Panic(BaseException):
    """As extensions in Rust raise it: no ``Exception``."""


ERRORS: Final[Sequence[Callable[[], BaseException]]] = (
    lambda: RuntimeError("the observer does not feel like it"),
    TimeoutError,
    MemoryError,
    lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
)
HARD_ERRORS: Final[Sequence[Callable[[], BaseException]]] = (
    Unspeakable,
    Panic,
    lambda: SystemExit(3),
    KeyboardInterrupt,
    GeneratorExit,
    cancelled_by_itself,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stubborn:
    """Raises one error at every call that is about a range, or a key."""

    error: Callable[[], BaseException]
    range_id: RangeId | None
    key: str | None

    def strikes(self, range_id: RangeId, changes: Sequence[Change]) -> bool:
        return range_id == self.range_id or any(x.key == self.key for x in changes)

    def __str__(self) -> str:
        where = f"range {self.range_id}" if self.key is None else f"key {self.key}"
        return f"{kind_of(self.error())} at every call on {where}"


@dataclass(slots=True, kw_only=True)
class Moods:
    """How observers are, as probabilities for one call. Times are in seconds.

    ``late`` is the longest that an acknowledgement may take. ``kill`` has the numbers of the
    changes that end the process. ``outage`` is raised at every call, where there is one. Those
    that are ``piecemeal`` say amid a batch how far they are, and may fail behind that.
    """

    pace: float
    manual: bool
    piecemeal: bool = False
    raises: float = 0.0
    hangs: float = 0.0
    blocks: float = 0.0
    late: float = 0.0
    poison: bool = False
    stubborn: Stubborn | None = None
    outage: Callable[[], BaseException] | None = None
    kill: Collection[int] = ()
    errors: Sequence[Callable[[], BaseException]] = ERRORS[:1]

    def calm(self) -> None:
        self.raises = self.hangs = self.blocks = self.late = 0.0
        self.poison = False
        self.stubborn = self.outage = None


class CheckedLetters(MemoryDeadLetters):
    """Dead letters of the whole fleet: what is put aside is done."""

    def __init__(self, checker: Scout, fails: Callable[[], bool]) -> None:
        super().__init__()
        self._checker = checker
        self._fails = fails

    async def put(self, letter: DeadLetter) -> None:
        await asyncio.sleep(0.002)
        if self._fails():
            self._checker.hit(Probe.LETTER_REFUSED)
            raise OSError("the disk is full")
        await super().put(letter)
        self._checker.put_aside(letter)


class SimulatedObserver:
    """One observer of ``process``. ``check`` keeps the first violation that a claim raises;
    ``block`` lets nothing of the process run for some seconds; ``die`` ends it, as the change
    of that number kills.
    """

    def __init__(
        self,
        process: str,
        moods: Moods,
        checker: Scout,
        random: Random,
        *,
        check: Callable[[Callable[[], None]], None],
        block: Callable[[float], None],
        die: Callable[[int], None],
    ) -> None:
        self._process = process
        self._moods = moods
        self._checker = checker
        self._random = random
        self._check = check
        self._block = block
        self._die = die
        self._closed = False

    async def open(self, context: Context) -> None:
        del context
        await asyncio.sleep(0.01)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        moods, chance = self._moods, self._random.random
        if self._closed:
            raise Violation(f"{self._process}: an observer was called after its close")
        call = Call(process=self._process, range_id=context.range.id, epoch=context.epoch)
        self._check(lambda: self._checker.began(call, changes))
        by_key = moods.piecemeal and chance() < 0.5
        pieces = self._pieces(changes, by_key=by_key) if moods.piecemeal else [changes]
        unsaid, said = list[Change](), False
        try:
            for piece in pieces:
                await self._do(call, piece, slowest=_SLOWEST / len(pieces))
                unsaid += piece
                if moods.piecemeal and chance() < 0.5:
                    self._checker.calls[self._process] += 1  # another checkpoint
                    self._acknowledge(context, unsaid, by_key=by_key)
                    unsaid, said = [], True
        except BaseException:
            self._checker.hit(Probe.FAILED_AMID_BATCH, where=said or bool(unsaid))
            self._checker.blame.failed(changes)
            raise
        finally:
            self._checker.ended(call)
            if moods.manual and unsaid:
                self._acknowledge(context, unsaid, by_key=by_key)

    def _pieces(self, changes: Sequence[Change], *, by_key: bool) -> Sequence[Sequence[Change]]:
        """Cut a batch where the observer may say how far it is."""
        if by_key:
            changes = sorted(changes, key=lambda x: (x.key, x.sequence))
        cuts = self._random.choices(range(1, len(changes) + 1), k=_MOST_CUTS)
        return [changes[x:y] for x, y in pairwise(sorted({0, *cuts, len(changes)}))]

    async def _do(self, call: Call, changes: Sequence[Change], *, slowest: float) -> None:
        moods, chance = self._moods, self._random.random
        pace = min(moods.pace * len(changes), slowest)
        await asyncio.sleep(pace * chance() * 2)
        if chance() < moods.hangs:
            await self._hang(chance() * 120)
        if moods.blocks and chance() < moods.blocks:
            self._block(chance() * 45)
        await self._be_killed(call, changes)
        self._fail(call.range_id, changes)
        self._check(lambda: self._checker.finished(call.range_id, changes))

    async def _be_killed(self, call: Call, changes: Sequence[Change]) -> None:
        """Do what comes before a change that kills, and end with the process."""
        numbers = [int(x.body) for x in changes] if self._moods.kill else []
        at = next((n for n, x in enumerate(numbers) if x in self._moods.kill), None)
        if at is None:
            return
        checker, killer = self._checker, changes[at]
        self._check(lambda: checker.finished(call.range_id, changes[:at]))
        held = checker.leases.get(call.range_id)
        stolen = held is not None and held.epoch > call.epoch
        blame = checker.blame
        self._check(lambda: blame.killed(call.process, call.range_id, killer, stolen=stolen))
        self._die(numbers[at])
        await asyncio.Event().wait()

    async def _hang(self, seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self._checker.hit(Probe.CALL_CUT_OFF)
            raise

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context, reason
        self._closed = True
        await asyncio.sleep(0.01)

    def _fail(self, range_id: RangeId, changes: Sequence[Change]) -> None:
        """Raise what the mood says for these changes, if anything."""
        moods = self._moods
        if self._random.random() < moods.raises:
            raise self._error()
        if moods.outage is not None:
            raise moods.outage()
        if moods.stubborn is not None and moods.stubborn.strikes(range_id, changes):
            raise moods.stubborn.error()
        if moods.poison and any(int(x.body) % _POISON == 0 for x in changes):
            raise ValueError("a change that no attempt helps")

    def _error(self) -> BaseException:
        errors = self._moods.errors
        return errors[0]() if len(errors) == 1 else self._random.choice(errors)()

    def _acknowledge(self, context: Context, changes: list[Change], *, by_key: bool) -> None:
        """One by one in any order, or all at once; now, or when the call is long over."""
        acknowledge = partial(self._acknowledge_now, context, changes, by_key=by_key)
        soon = self._moods.piecemeal and self._random.random() < 0.5
        if late := self._moods.late or _SOON * soon:
            delay = self._random.random() * late
            asyncio.get_running_loop().call_later(delay, acknowledge)
        else:
            acknowledge()

    def _acknowledge_now(
        self, context: Context, changes: list[Change], *, by_key: bool
    ) -> None:
        if self._random.random() < 0.5 and not by_key:
            acknowledged = [changes[-1]]
            call = context.checkpoint
        else:
            self._random.shuffle(changes)
            acknowledged, call = changes, context.acknowledge
        self._checker.hit(Probe.LATE_ACKNOWLEDGEMENT, where=self._closed)
        with suppress(ValueError):  # the observer was opened anew: they come again
            for change in acknowledged:
                call(change)
