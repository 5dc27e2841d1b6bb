"""Tables of commands, in which no name is ever cut: a name that is copied must be whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import typer
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from changefeed.runtime.printable import printable

_WIDE = 1_000_000


def a_table(*columns: str, rows: Iterable[Sequence[str | Text]]) -> Table:
    """Return a table. What is too long for its column goes on in the next line."""
    table = Table(*(Column(x, overflow="fold") for x in columns))
    for row in rows:
        table.add_row(*(x if isinstance(x, Text) else plain(x) for x in row))
    return table


def plain(text: str, style: str = "") -> Text:
    """Return text in one line that others wrote: no markup, and nothing that moves a cursor."""
    return Text(printable(text), style=style)


def print_whole(shown: RenderableType) -> None:
    """Print to a terminal in its width, and anywhere else with a line for each row."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    with console.capture() as captured:  # a console has a way of its own to end the process
        console.print(shown)
    typer.echo(captured.get(), nl=False)


@contextmanager
def refreshed() -> Iterator[Callable[[RenderableType], None]]:
    """Yield what shows one look in the place of the one before on a terminal, and below it
    anywhere else.
    """
    if not Console().is_terminal:
        yield print_whole
        return
    with Live(auto_refresh=False, screen=True) as live:
        yield partial(live.update, refresh=True)
