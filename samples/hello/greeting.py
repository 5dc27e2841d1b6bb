"""The smallest observer: one function. README.md shows it."""

from collections.abc import Sequence

from changefeed.feeds.feed import Change
from changefeed.observers.observer import Context


async def greet(context: Context, changes: Sequence[Change]) -> None:
    for change in changes:
        person = change.value()
        print(f"{context.host}: hello, {person['name']} of {person['town']}", flush=True)
