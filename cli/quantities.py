"""Flags that take a duration or a size, in the units of ``changefeed.runtime.quantities``."""

from collections.abc import Callable
from typing import Any

import typer

from changefeed.runtime.quantities import seconds, size


def duration_option(
    *names: str,
    help: str,  # noqa: A002 - as typer names it
    default: str | None = None,
    **bounds: float,
) -> Any:
    """Declare a flag of seconds, with ``min`` and ``max`` as its bounds, and its default as
    help shows it.
    """
    parser = _within(seconds, bounds.get("min", 0.0), bounds.get("max", float("inf")))
    return typer.Option(
        *names, metavar="DURATION", parser=parser, help=help, show_default=default or False
    )


def size_option(*names: str, help: str) -> Any:  # noqa: A002 - as typer names it
    """Declare a flag of bytes, at least one."""
    return typer.Option(
        *names, metavar="SIZE", parser=_within(size, 1, float("inf")), help=help
    )


def _within(read: Callable[[str], float], low: float, high: float) -> Callable[[Any], Any]:
    def parse(given: Any) -> Any:
        if not isinstance(given, str):  # a default
            return given
        try:
            found = read(given)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        if not low <= found <= high:
            bounds = f"at least {low:g}" if high == float("inf") else f"{low:g} to {high:g}"
            raise typer.BadParameter(f"{given!r} is out of bounds: {bounds}")
        return found

    return parse
