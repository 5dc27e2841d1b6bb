"""Looking at dead letters, replaying and discarding them, with what is said of each."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Self

import msgspec

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Change
from changefeed.fleet.phrases import Outcome
from changefeed.observers.dead_letters import (
    DeadLetter,
    DeadLetters,
    LetterHead,
    LetterId,
    open_dead_letters,
    replay,
)
from changefeed.observers.error_text import describe
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import counted

REPLAY_MEANS = (
    "The observer has handled later changes of the same keys long ago, so it must recognize an "
    "older change. Where a letter fails again, later ones of its key are left out."
)
DISCARD_MEANS = "Delete letters for good, without giving their changes to an observer."


def existing_letters(
    address: str, options: OpenOptions
) -> AbstractAsyncContextManager[DeadLetters]:
    """Open them where they are. Raise ``StoreMissing`` where there are none."""
    return open_dead_letters(address, replace(options, must_exist=True))


def select_letters(
    letters: Sequence[LetterHead], ids: Sequence[str], of: str | None = None
) -> list[LetterHead]:
    """Return those of these ids, or all; with ``of`` those of this observer alone.

    Raise ``UserError`` for an id that there is not.
    """
    known = {x.id: x for x in letters}
    for wanted in ids:
        if wanted not in known:
            others = "; changefeed dead-letters list names them" if known else ", nor any other"
            raise UserError(f"there is not a dead letter {wanted!r}{others}")
    return [x for x in letters if (not ids or x.id in ids) and of in (None, x.observer)]


def by_observer(
    letters: Sequence[LetterHead], observer: str | None
) -> tuple[list[LetterHead], list[LetterHead]]:
    """Divide letters into those of this observer, and those of others."""
    own = [x for x in letters if x.observer == observer]
    return own, [x for x in letters if x.observer != observer]


def skipped(letters: Sequence[LetterHead]) -> list[str]:
    """Say of the letters of other observers that they stay, and what would replay them."""
    return [
        f"{counted(count, 'letter')} of observer {name}, left: for that one, or for any other "
        f"with changefeed dead-letters replay --all --of={name}"
        for name, count in sorted(Counter(x.observer for x in letters).items())
    ]


async def replay_letters(
    letters: DeadLetters, wanted: Sequence[LetterHead], make: ObserverFactory, *, manual: bool
) -> AsyncIterator[Outcome]:
    """Give them to an observer one by one, and forget those that it has handled."""
    failed: set[tuple[str, str, str]] = set()
    for head in wanted:
        key = (head.feed, head.range_id, head.key)
        if key in failed:
            yield Outcome(
                f"{head.id}: left out, as an earlier change of its key failed", failed=True
            )
            continue
        said = await _replayed(letters, head.id, make, manual=manual)
        if said.failed:
            failed.add(key)
        yield said


async def _replayed(
    letters: DeadLetters, letter_id: LetterId, make: ObserverFactory, *, manual: bool
) -> Outcome:
    try:
        letter = await letters.get(letter_id)
        if letter is None:
            return Outcome(f"{letter_id}: not there any more")
        await replay(letters, letter, make, manual=manual)
    except Exception as error:  # noqa: BLE001 - the border to the user's code
        text = f"{letter_id}: failed, and stays: {describe(error)}"
        return Outcome(text, failed=True)
    return Outcome(f"{letter_id}: handled")


async def discard_letters(
    letters: DeadLetters, wanted: Sequence[LetterHead]
) -> AsyncIterator[Outcome]:
    for letter in wanted:
        if await letters.remove(letter.id):
            yield Outcome(f"{letter.id}: discarded")


class LetterDocument(LetterHead, frozen=True, kw_only=True):
    """A letter for people and programs: its head, with ``trace`` and ``body`` if it is whole.

    ``body`` is what the JSON of the change says or, where it is none, its text.
    """

    trace: str | msgspec.UnsetType = msgspec.UNSET
    body: Any = msgspec.UNSET

    @classmethod
    def whole(cls, letter: DeadLetter) -> Self:
        head = msgspec.structs.asdict(letter.head)
        return cls(**head, trace=letter.failure.trace, body=_body(letter.change))


def _body(change: Change) -> Any:
    try:
        return change.value()
    except ValueError:
        return change.body.decode(errors="replace")
