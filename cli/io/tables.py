"""Tables of commands, in which no name is ever cut: a name that is copied must be whole."""

from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text

_WIDE = 1_000_000


def a_table(*columns: str, rows: Iterable[Sequence[str]]) -> Table:
    """Return a table. What is too long for its column goes on in the next line."""
    table = Table(*(Column(x, overflow="fold") for x in columns))
    for row in rows:
        table.add_row(*map(Text, row))  # what others wrote may look like markup
    return table


def print_whole(shown: RenderableType) -> None:
    """Print to a terminal in its width, and anywhere else with a line for each row."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    console.print(shown)
