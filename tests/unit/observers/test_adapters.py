"""What users may write as an observer, and what is refused. No threads: see the next file."""

import abc
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.errors import ObserverRefused
from changefeed.observers.observer import CloseReason, Context
from tests.support.observing import RememberingContext, change


async def test_an_async_function_of_the_changes_is_an_observer() -> None:
    seen: list[int] = []

    async def remember(changes: Sequence[Change]) -> None:
        seen.extend(x.sequence for x in changes)

    observer = adapt(remember)()
    context = RememberingContext()
    await observer.open(context)
    await observer.process(context, [change(1), change(2)])
    await observer.close(context, CloseReason.STOPPING)
    assert seen == [1, 2]


async def test_a_function_of_two_is_given_the_context_first() -> None:
    async def remember(context: Context, changes: Sequence[Change]) -> None:
        context.checkpoint(changes[-1])

    context = RememberingContext()
    observer = adapt(remember)()
    await observer.open(context)
    await observer.process(context, [change(7)])
    assert context.checkpoints == [7]


class Recording:
    """An async observer with all three methods, which records what was called."""

    seen: list[Any]

    def __init__(self, seen: list[Any], *, name: str = "none") -> None:
        self.seen = seen
        self.name = name

    async def open(self, context: Context) -> None:
        self.seen.append((self.name, "open", context.range.id))

    async def process(self, _context: Context, changes: Sequence[Change]) -> None:
        self.seen.append((self.name, [x.sequence for x in changes]))

    async def close(self, _context: Context, reason: CloseReason) -> None:
        self.seen.append((self.name, reason))


async def test_options_go_to_the_constructor_and_each_observer_is_a_new_object() -> None:
    seen: list[Any] = []
    make = adapt(Recording, {"seen": seen, "name": "a"})
    context = RememberingContext()
    first, second = make(), make()
    await first.open(context)
    await second.open(context)
    await first.process(context, [change(1)])
    await first.close(context, CloseReason.LEASE_LOST)
    assert seen == [
        ("a", "open", "r1"),
        ("a", "open", "r1"),
        ("a", [1]),
        ("a", CloseReason.LEASE_LOST),
    ]


async def test_a_partly_applied_class_is_a_class() -> None:
    seen: list[Any] = []
    observer = adapt(functools.partial(Recording, seen), {"name": "b"})()
    await observer.open(RememberingContext())
    assert seen == [("b", "open", "r1")]


async def test_an_object_with_an_async_call_is_a_function() -> None:
    class Saver:
        def __init__(self) -> None:
            self.saved: list[int] = []

        async def __call__(self, changes: Sequence[Change]) -> None:
            self.saved += [x.sequence for x in changes]

    saver = Saver()
    observer = adapt(saver)()
    context = RememberingContext()
    await observer.open(context)
    await observer.process(context, [change(3)])
    assert saver.saved == [3]


async def test_an_observer_that_failed_to_open_may_be_opened_again_and_closed() -> None:
    class Late:
        made = 0
        opened = 0

        def __init__(self) -> None:
            type(self).made += 1

        async def open(self, _context: Context) -> None:
            type(self).opened += 1
            if self.opened == 1:
                raise ConnectionError("not yet")

        async def process(self, changes: Sequence[Change]) -> None: ...

    context = RememberingContext()
    observer = adapt(Late)()
    with pytest.raises(ConnectionError):
        await observer.open(context)
    await observer.open(context)
    await observer.close(context, CloseReason.STOPPING)
    assert (Late.made, Late.opened) == (1, 2)


async def test_static_and_class_methods_are_counted_without_self() -> None:
    seen: list[int] = []

    class Odd:
        @classmethod
        async def open(cls, context: Context) -> None: ...

        @staticmethod
        async def process(changes: Sequence[Change]) -> None:
            seen.extend(x.sequence for x in changes)

    context = RememberingContext()
    observer = adapt(Odd)()
    await observer.open(context)
    await observer.process(context, [change(1)])
    assert seen == [1]


def none() -> None: ...
def three(context: Context, changes: Sequence[Change], more: int) -> None: ...
def by_name(changes: Sequence[Change], *, table: str) -> None: ...
def generator(changes: Sequence[Change]) -> Iterator[Change]:
    yield from changes


async def async_generator(changes: Sequence[Change]) -> AsyncIterator[Change]:
    for x in changes:
        yield x


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        (none, "none must take (context, changes) or (changes); it takes () -> None"),
        (three, "three must take (context, changes) or (changes)"),
        (by_name, "by_name must take (context, changes) or (changes)"),
        (generator, "generator is a generator: calling it runs nothing"),
        (async_generator, "async_generator is a generator: calling it runs nothing"),
        (42, "42 is neither a class with a 'process' nor a function"),
        (Recording([]), "is one object, and every range needs its own: give its class"),
    ],
)
def test_what_nobody_can_call_is_refused(target: Any, advice: str) -> None:
    with pytest.raises(ObserverRefused) as refused:
        adapt(target)
    assert advice in str(refused.value)


class NoProcess:
    def handle(self, changes: Sequence[Change]) -> None: ...


class WrongOpen:
    def open(self) -> None: ...
    def process(self, changes: Sequence[Change]) -> None: ...


class WrongClose:
    def process(self, changes: Sequence[Change]) -> None: ...
    def close(self, context: Context) -> None: ...


class Abstract(abc.ABC):
    @abc.abstractmethod
    def process(self, changes: Sequence[Change]) -> None: ...


class NotAMethod:
    process = "soon"


@pytest.mark.parametrize(
    ("cls", "advice"),
    [
        (NoProcess, "class NoProcess has no method 'process(self, context, changes)'"),
        (WrongOpen, "WrongOpen.open must take (context); it takes () -> None"),
        (WrongClose, "WrongClose.close must take (context, reason); it takes (context:"),
        (Abstract, "class Abstract is abstract; it lacks process"),
        (NotAMethod, "NotAMethod.process is not a method, but 'soon'"),
    ],
)
def test_a_class_of_the_wrong_shape_is_refused(cls: type, advice: str) -> None:
    with pytest.raises(ObserverRefused) as refused:
        adapt(cls)
    assert advice in str(refused.value)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({}, "missing a required argument: 'seen' (given: none)"),
        (
            {"seen": [], "nme": "a"},
            "got an unexpected keyword argument 'nme' (given: seen, nme)",
        ),
    ],
)
def test_options_that_the_constructor_does_not_take_are_refused(
    options: dict[str, object], advice: str
) -> None:
    with pytest.raises(ObserverRefused) as refused:
        adapt(Recording, options)
    assert str(refused.value) == f"Recording cannot be made of these options: {advice}"


def test_a_function_takes_no_options() -> None:
    function: Callable[..., None] = lambda changes: None  # noqa: ARG005, E731 - one, on purpose
    with pytest.raises(ObserverRefused, match="is a function and takes no options"):
        adapt(function, {"table": "orders"})
