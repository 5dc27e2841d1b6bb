"""Finds the change that the observer cannot handle, and puts it aside.

A batch that has used up its attempts is halved, and its halves are tried one after the
other, with fewer attempts; and so on down to the single change, which has all attempts
once more. Nothing is handed on out of its turn within a key. Pieces that are done are
acknowledged at once, so that a crash in the midst of it repeats little.

Is it the change, or does everything fail at the moment? A change that fails alone is put
aside only if another one succeeds where it failed:

1. Right after its last attempt, the next changes of other keys are tried, each alone, at
   growing distances. If none succeeds, it is an outage: nothing is put aside, the batch
   fails and comes again. If one does, it is done, and the first one is tried once more,
   in case the outage ended in between. If it fails even then, it is to blame.
2. If the batch holds no change of another key, it is enough that the observer has
   succeeded since the trouble began, and since the last change was put aside.
3. If there was nothing to succeed on, the change has all its attempts a second time, and
   is put aside on suspicion; but never a second one before the observer succeeds.

So an outage costs at most one letter for each range of a host, and only where batches of
one change, or of one key, leave no way to find out. A change is put to the dead letters, and
lastingly, before anything behind it within its key is handed on. If that cannot be done,
the batch fails.

With manual checkpoints changes of other keys may be done before one that has failed. There,
to checkpoint a change acknowledges what the observer was given up to it and has not failed on.

Limits: with as many broken changes in a row that every one tried in 1. is broken, it is
taken for an outage. What 3. remembers is lost with the process.
"""

import enum
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters.letter import failure_of
from changefeed.observers.errors import ObserverFailed
from changefeed.observers.middleware.aside import Aside
from changefeed.observers.middleware.delivered import DeliveredContext
from changefeed.observers.observer import CloseReason, Context, Observer


@dataclass(kw_only=True)
class PoisonSuspicion:
    """Whether a change was put aside on suspicion, and nothing has succeeded since.

    It is kept for each range by the maker of its observers: an observer that has failed
    is closed, and its successor must know.
    """

    open: bool = False


class Verdict(enum.Enum):
    POISON = "the observer fails on this change, and on it alone"
    OUTAGE = "the observer fails on others, too"
    DONE = "the observer has handled it after all"


class PoisonIsolation:
    """Wraps one observer twice: ``patient`` has all attempts, ``hasty`` has few.

    With ``acknowledges`` it reports to the context what is done. With manual checkpoints
    that is the user's to say, except of a change that was put aside.
    """

    def __init__(
        self,
        retrying: Observer,
        probing: Observer,
        aside: Aside,
        *,
        suspicion: PoisonSuspicion,
        acknowledges: bool = True,
    ) -> None:
        self._retrying = retrying
        self._probing = probing
        self._aside = aside
        self._suspicion = suspicion
        self._acknowledges = acknowledges
        self._succeeded = False
        self._view: DeliveredContext | None = None

    async def open(self, context: Context) -> None:
        if not self._acknowledges:
            self._view = DeliveredContext(context)
        await self._retrying.open(self._view or context)

    async def close(self, context: Context, reason: CloseReason) -> None:
        await self._retrying.close(context, reason)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self._succeeded = False
        rest = deque([changes])
        while rest:
            piece = rest.popleft()
            assert piece, "a piece without changes would be halved for ever"
            alone = len(piece) == 1
            observer = self._retrying if alone or piece is changes else self._probing
            failed = await self._try(observer, context, piece)
            if failed is None:
                if piece is not changes:  # of a whole batch, returning says so
                    self._acknowledge(context, piece)
            elif not alone:
                half = len(piece) // 2
                rest.extendleft((piece[half:], piece[:half]))
            else:
                await self._settle(context, piece[0], failed, rest)

    async def _try(
        self, observer: Observer, context: Context, changes: Sequence[Change]
    ) -> ObserverFailed | None:
        """Return the failure, unless it is time to part: then nothing can be concluded."""
        view = self._view
        if view is not None:
            view.deliver(changes)
        try:
            await observer.process(view or context, changes)
        except ObserverFailed as failed:
            if view is not None:
                view.withdraw(changes)
            if context.handing_over:
                raise
            return failed
        self._succeeded = True
        self._suspicion.open = False
        return None

    def _acknowledge(self, context: Context, changes: Sequence[Change]) -> None:
        if self._acknowledges:
            for change in changes:
                context.acknowledge(change)

    async def _settle(
        self,
        context: Context,
        change: Change,
        failed: ObserverFailed,
        rest: deque[Sequence[Change]],
    ) -> None:
        """Deal with a change that failed alone. Raise ``ObserverFailed`` for an outage."""
        match await self._judge(context, change, rest):
            case Verdict.DONE:
                self._acknowledge(context, [change])
            case Verdict.POISON:
                failure = failure_of(failed.__cause__ or failed)
                await self._aside.put(context, change, failure, attempts=failed.attempts)
                self._succeeded = False
            case Verdict.OUTAGE:
                reason = f"{failed.reason} (so do others: an outage; nothing is put aside)"
                raise _failed_on(change, failed, reason) from failed.__cause__

    async def _judge(
        self, context: Context, change: Change, rest: deque[Sequence[Change]]
    ) -> Verdict:
        others = _first_of_other_keys(change, rest)
        for other in others:
            if await self._try(self._probing, context, [other]) is None:
                self._acknowledge(context, [other])
                _take_out(other, rest)
                return await self._poison_unless_done(self._probing, context, change)
        if others:
            return Verdict.OUTAGE
        if self._succeeded:
            return Verdict.POISON
        if self._suspicion.open:
            return Verdict.OUTAGE
        verdict = await self._poison_unless_done(self._retrying, context, change)
        self._suspicion.open = verdict is Verdict.POISON
        return verdict

    async def _poison_unless_done(
        self, observer: Observer, context: Context, change: Change
    ) -> Verdict:
        failed = await self._try(observer, context, [change])
        return Verdict.DONE if failed is None else Verdict.POISON


def _failed_on(change: Change, failed: ObserverFailed, reason: str) -> ObserverFailed:
    sequences = (change.sequence, change.sequence)
    return ObserverFailed(failed.range_id, sequences, failed.attempts, reason)


def _first_of_other_keys(change: Change, rest: deque[Sequence[Change]]) -> list[Change]:
    """Pick changes to try instead: each the first of its key, further and further away."""
    firsts: dict[str, Change] = {}
    for piece in rest:
        for other in piece:
            firsts.setdefault(other.key, other)
    firsts.pop(change.key, None)
    candidates = list(firsts.values())
    return [candidates[2**n - 1] for n in range(len(candidates).bit_length())]


def _take_out(change: Change, rest: deque[Sequence[Change]]) -> None:
    left = ([x for x in piece if x.sequence != change.sequence] for piece in list(rest))
    remaining = [piece for piece in left if piece]
    rest.clear()
    rest.extend(remaining)
