"""The smallest observer: one function. README.md shows it."""

from collections.abc import Sequence

from changefeed import Change, Context


async def greet(context: Context, changes: Sequence[Change]) -> None:
    for change in changes:
        person = change.value()
        print(f"{context.host}: hello, {person['name']} of {person['town']}", flush=True)
