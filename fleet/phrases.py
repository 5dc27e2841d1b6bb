"""Phrases that more than one command says, and the page."""

from collections.abc import Collection
from difflib import get_close_matches


def counted(number: int, noun: str) -> str:
    """Return ``1 lease``, ``2 leases``; ``noun`` is one of which the plural ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def repeats(again: int | None) -> str:
    """Say what a new position means: ``again`` changes come again, or so many below 0 never."""
    if again is None:
        return "the feed cannot estimate how many changes"
    if again > 0:
        return f"{again:,} delivered again"
    return f"{-again:,} never delivered" if again else "stays where it is"


def no_lease(name: str, known: Collection[str]) -> str:
    """Say that a range has no lease, and what may be meant instead."""
    if not known:
        return (
            f"there is no lease of a range {name!r}, nor of any other: no host has run with "
            f"these leases, or they are those of another fleet"
        )
    near = get_close_matches(name, known, n=1)
    advice = f"did you mean {near[0]}?" if near else "changefeed status lists them"
    return f"there is no lease of a range {name!r}; {advice}"
