"""What a replay says of observers that fail, also by what would end a process."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.fleet.letters import replay_letters
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import MemoryDeadLetters
from changefeed.observers.observer import CloseReason, Context
from tests.support import make

pytestmark = pytest.mark.real_time


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


ERRORS: tuple[Callable[[], BaseException], ...] = (
    lambda: SystemExit(0),
    KeyboardInterrupt,
    asyncio.CancelledError,
    GeneratorExit,
    Unprintable,
)


class Plain:
    """Raises in one of its methods, which are called in a thread."""

    def __init__(self, where: str, error: Callable[[], BaseException]) -> None:
        self.where = where
        self.error = error
        self.maybe_raise("init")

    def maybe_raise(self, here: str) -> None:
        if self.where == here:
            raise self.error()

    def open(self, _: Context) -> None:
        self.maybe_raise("open")

    def process(self, _: Sequence[Change]) -> None:
        self.maybe_raise("process")

    def close(self, _: Context, __: CloseReason) -> None:
        self.maybe_raise("close")


class Async:
    """The same on the event loop."""

    def __init__(self, where: str, error: Callable[[], BaseException]) -> None:
        self.plain = Plain(where, error)

    async def open(self, _: Context) -> None:
        self.plain.maybe_raise("open")

    async def process(self, _: Sequence[Change]) -> None:
        self.plain.maybe_raise("process")

    async def close(self, _: Context, __: CloseReason) -> None:
        self.plain.maybe_raise("close")


@pytest.mark.parametrize("error", ERRORS, ids=lambda x: type(x()).__name__)
@pytest.mark.parametrize("where", ["init", "open", "process", "close"])
@pytest.mark.parametrize("kind", [Plain, Async])
async def test_a_letter_stays_and_the_next_one_is_tried_whatever_is_raised(
    kind: Any, where: str, error: Callable[[], BaseException]
) -> None:
    letters = MemoryDeadLetters()
    both = [make.letter(1, range_id="r1"), make.letter(1, range_id="r2")]
    for one in both:
        await letters.put(one)
    made = adapt(kind, {"where": where, "error": error})
    said = [x async for x in replay_letters(letters, await letters.list(), made, manual=False)]
    name = type(error()).__name__
    assert [x.text.split(": ")[:2] for x in said] == [[x.id, "failed, and stays"] for x in both]
    assert all(name in x.text for x in said)
    assert all(x.failed for x in said)
    assert await make.whole(letters) == both


async def test_behind_a_letter_that_fails_those_of_its_key_stay_and_others_go() -> None:
    letters, tried = MemoryDeadLetters(), list[int]()
    for n, range_id in enumerate(("r1", "r1", "r2", "r2"), start=1):
        await letters.put(make.letter(n, range_id=range_id))

    async def observer(changes: Sequence[Change]) -> None:
        tried.extend(x.sequence for x in changes)
        if changes[0].range_id == "r1":
            raise ValueError("no such column")

    wanted, made = await letters.list(), adapt(observer, {})
    said = [x async for x in replay_letters(letters, wanted, made, manual=False)]
    assert [x.failed for x in said] == [True, True, False, False]
    assert (tried, len(await letters.list())) == ([1, 3, 4], 2)
