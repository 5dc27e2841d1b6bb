"""What is behind an error."""

from collections.abc import Callable

import pytest

from changefeed.observers.errors import came_of
from tests.support.odd_errors import Opaque


def grouped() -> BaseException:
    return BaseExceptionGroup("tasks", [SystemExit(), ExceptionGroup("", [MemoryError()])])


def caused() -> BaseException:
    error = RuntimeError("cannot sort the batch")
    error.__cause__ = grouped()
    return error


def while_handling(*, hidden: bool = False) -> BaseException:
    error = KeyError("x")
    error.__context__ = MemoryError()
    error.__suppress_context__ = hidden
    return error


def around_in_a_circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize("make", [MemoryError, grouped, caused, while_handling])
def test_memory_that_is_missing_is_found_in_groups_and_behind_other_errors(
    make: Callable[[], BaseException],
) -> None:
    assert came_of(make(), MemoryError)


@pytest.mark.parametrize(
    "make",
    [
        ValueError,
        lambda: while_handling(hidden=True),
        around_in_a_circle,
        Opaque,
        lambda: ExceptionGroup("", [Opaque()]),
    ],
)
def test_memory_that_is_not_missing_is_not_found(make: Callable[[], BaseException]) -> None:
    assert not came_of(make(), MemoryError)
