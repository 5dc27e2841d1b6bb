"""What is said of observers."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import open_dead_letters
from changefeed.observers.registry import load_observer
from tests.unit.observers.test_adapters import UNFIT, Recording

from .table import Table

OBSERVERS: Final = Table("Observers and dead letters")


@OBSERVERS.says("what no host could call")
def _() -> Iterable[str]:
    for target, _ in UNFIT:
        try:
            adapt(target)
        except Exception as error:  # noqa: BLE001 - its text is what is asked for
            yield re.sub(" at 0x[0-9a-f]+", "", str(error))


OBSERVERS.each(
    lambda options: adapt(Recording, options),
    {
        "a class without an option that it needs": {},
        "a class with an option that it does not take": {"seen": [], "nme": "a"},
    },
)
OBSERVERS.each(
    load_observer,
    {
        "a name of no observer": "zzz",
        "a name that is neither a module nor an attribute": "./shop.py:Orders",
    },
)
OBSERVERS.each(
    open_dead_letters,
    {
        "dead letters at a path": "data/x.db",
        "dead letters in a file without a path": "jsonl:",
        "dead letters at an address that nothing could read": "postgresql://[/d",
    },
)


@OBSERVERS.says("dead letters in a file of something else")
async def _(folder: Path) -> None:
    (folder / "notes.txt").write_text("remember the milk\n")
    async with open_dead_letters(f"jsonl:{folder}/notes.txt"):
        pass
