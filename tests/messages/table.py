"""What a table of messages is made of: causes, and functions that say something of them."""

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

Case = Callable[..., object]
"""Raises an error, or returns a text or several; async if it likes.

A case with a parameter ``folder`` is given an empty one, which the table calls ``FOLDER``.
"""


class Table:
    """The messages of one part of the product, under its ``title``."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._cases: dict[str, Case] = {}

    def says(self, cause: str) -> Callable[[Case], Case]:
        """Add the decorated function as the case of a cause."""

        def add(case: Case) -> Case:
            assert cause not in self._cases, f"{self.title}: {cause!r} stands twice"
            self._cases[cause] = case
            return case

        return add

    def each(self, function: Callable[[Any], object], causes: Mapping[str, Any]) -> None:
        """Add a case for each cause, which calls the function with its argument."""
        for cause, argument in causes.items():
            self.says(cause)(partial(function, argument))

    def lines(self) -> Iterable[str]:
        """Yield the lines of its section."""
        yield f"## {self.title}"
        yield ""
        for cause, case in self._cases.items():
            yield f"* {cause}"
            yield from (f"    * {x}" for x in _said(case))
        yield ""


def _said(case: Case) -> list[str]:
    """Return what is said, each with the class of its error."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        try:
            said = _called(case, folder)
        except (AttributeError, KeyError, NameError, TypeError):
            raise  # the case is broken, not what it says
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what users read
            texts = [f"`{type(error).__name__}`: {error}"]
        else:
            texts = [said] if isinstance(said, str) else [f"{x}" for x in _many(said, case)]
        return [" ".join(x.replace(str(folder), "FOLDER").split()) for x in texts]


def _called(case: Case, folder: Path) -> object:
    wants_folder = "folder" in inspect.signature(case).parameters
    result = case(folder=folder) if wants_folder else case()
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Awaitable[object]) -> object:
    return await result


def _many(said: object, case: Case) -> Iterable[object]:
    assert isinstance(said, Iterable), f"{case} neither raises nor returns a text: {said!r}"
    return said
