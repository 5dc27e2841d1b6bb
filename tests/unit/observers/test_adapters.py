"""What users may write as an observer, and what is refused. No threads: see the next file."""

import abc
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import UserError
from tests.support import make


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


async def of_changes(changes: Sequence[Change]) -> None:
    SEEN.extend(x.sequence for x in changes)


async def of_two(context: Context, changes: Sequence[Change]) -> None:
    assert context.range.id == "r1"
    await of_changes(changes)


class WithCall:
    async def __call__(self, changes: Sequence[Change]) -> None:
        await of_changes(changes)


class WithoutSelf:
    @classmethod
    async def open(cls, context: Context) -> None: ...

    @staticmethod
    async def process(changes: Sequence[Change]) -> None:
        await of_changes(changes)


class WithTable:
    def __init__(self, table: str) -> None:
        assert table == "orders"

    async def process(self, changes: Sequence[Change]) -> None:
        await of_changes(changes)


SEEN: list[int] = []


@pytest.mark.parametrize(
    "target",
    [of_changes, of_two, WithCall(), WithoutSelf, functools.partial(WithTable, "orders")],
)
async def test_a_function_a_class_or_an_object_that_is_called_is_an_observer(
    target: Any,
) -> None:
    SEEN.clear()
    observer, context = adapt(target)(), make.context()
    await observer.open(context)
    await observer.process(context, [make.change(1), make.change(2)])
    await observer.close(context, CloseReason.STOPPING)
    assert SEEN == [1, 2]


async def test_options_go_to_the_constructor_and_each_observer_is_a_new_object() -> None:
    seen: list[Any] = []
    made = adapt(Recording, {"seen": seen, "name": "a"})
    context = make.context()
    first, second = made(), made()
    await first.open(context)
    await second.open(context)
    await first.process(context, [make.change(1)])
    await first.close(context, CloseReason.LEASE_LOST)
    assert seen == [
        ("a", "open", "r1"),
        ("a", "open", "r1"),
        ("a", [1]),
        ("a", CloseReason.LEASE_LOST),
    ]


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

    context = make.context()
    observer = adapt(Late)()
    with pytest.raises(ConnectionError):
        await observer.open(context)
    await observer.open(context)
    await observer.close(context, CloseReason.STOPPING)
    assert (Late.made, Late.opened) == (1, 2)


def none() -> None: ...
def three(context: Context, changes: Sequence[Change], more: int) -> None: ...
def by_name(changes: Sequence[Change], *, table: str) -> None: ...
def generator(changes: Sequence[Change]) -> Iterator[Change]:
    yield from changes


async def async_generator(changes: Sequence[Change]) -> AsyncIterator[Change]:
    for x in changes:
        yield x


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


UNFIT: list[tuple[Any, str]] = [
    (none, "none must take"),
    (three, "three must take"),
    (by_name, "by_name must take"),
    (generator, "generator is a generator"),
    (async_generator, "async_generator is a generator"),
    (42, "42"),
    (Recording([]), "one object"),
    (NoProcess, "process(self, context, changes)"),
    (WrongOpen, "WrongOpen.open must take (context)"),
    (WrongClose, "WrongClose.close must take (context, reason)"),
    (Abstract, "Abstract is abstract"),
    (NotAMethod, "NotAMethod.process is not a method"),
    (max, "max does not say its parameters"),
]


@pytest.mark.parametrize(("target", "fact"), UNFIT)
def test_what_no_host_could_call_is_refused(target: Any, fact: str) -> None:
    with pytest.raises(UserError) as refused:
        adapt(target)
    assert fact in str(refused.value)


@pytest.mark.parametrize("made", [generator, async_generator])
async def test_a_call_that_returns_a_generator_has_failed(made: Callable[..., object]) -> None:
    def process(changes: Sequence[Change]) -> object:
        return made(changes)

    observer, context = adapt(process)(), make.context()
    with pytest.raises(TypeError, match="of which nothing has run"):
        await observer.process(context, [make.change(1)])
    await observer.close(context, CloseReason.FAILED)


function: Callable[..., None] = lambda changes: None  # noqa: ARG005, E731 - one, on purpose


@pytest.mark.parametrize(
    ("target", "options", "wrong"),
    [
        (Recording, {}, "'seen'"),
        (Recording, {"seen": [], "nme": "a"}, "'nme'"),
        (function, {"table": "orders"}, "is a function"),
    ],
)
def test_options_that_the_constructor_does_not_take_are_refused(
    target: Any, options: dict[str, object], wrong: str
) -> None:
    with pytest.raises(UserError, match=wrong):
        adapt(target, options)
