"""Phrases that more than one command says, and the page."""


def counted(number: int, noun: str) -> str:
    """Return ``1 lease``, ``2 leases``; ``noun`` is one of which the plural ends in s."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def repeats(again: int | None) -> str:
    """Say what a new position means: ``again`` changes come again, or so many below 0 never."""
    if again is None:
        return "the feed cannot estimate how many changes"
    if again > 0:
        return f"{again:,} delivered again"
    return f"{-again:,} never delivered" if again else "stays where it is"
