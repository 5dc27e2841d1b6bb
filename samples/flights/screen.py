"""What people see: a live table on a terminal, a line now and then elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .observer import Carrier
from .watch import Availability, TableSight

_SECONDS_BETWEEN_LINES = 2.0
_SECONDS_BETWEEN_TABLE_LINES = 5.0
_RATE_OVER = 3.0  # seconds: long enough to be readable, short enough to show a failover
_TABLES_RATE_OVER = 30.0  # a batch takes many seconds

_STYLES = {"running": "green", "killed": "bold red", "stopping": "yellow", "stopped": "dim"}

_SAME, _DIFFERS = Text("equal", "green"), Text("DIFFERS", "bold red")

Show = Callable[[Availability, Mapping[str, str]], None]
"""Shows the leases, and what became of each host."""
ShowTables = Callable[[Sequence[TableSight]], None]


class Screen:
    """Prints to a console, with the seconds since it was made."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        line = f"{self._elapsed():6.1f} s  {text}"
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def live(self) -> Iterator[Show]:
        """Show sights while the block runs; what is said meanwhile stands above them."""
        rate = Rate()
        if not self._console.is_terminal:
            say = self._now_and_then(_SECONDS_BETWEEN_LINES)
            yield lambda sight, states: say(in_a_line(sight, states, rate))
            return
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda sight, states: live.update(table(sight, states, rate), refresh=True)

    @contextmanager
    def live_tables(self) -> Iterator[ShowTables]:
        """Show how far the tables are, in the same way."""
        rate = Rate(over=_TABLES_RATE_OVER)
        if not self._console.is_terminal:
            say = self._now_and_then(_SECONDS_BETWEEN_TABLE_LINES)
            yield lambda sights: say(tables_in_a_line(sights, rate))
            return
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda sights: live.update(
                tables_table(sights, rate, self._elapsed()), refresh=True
            )

    def tell(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def result(
        self, carriers: Mapping[str, Carrier], found: Mapping[str, Mapping[str, Carrier]]
    ) -> None:
        """Show the figures of the data, and whose are the same; see ``carriers_table``."""
        self._console.print(carriers_table(carriers, found))
        legend = "late: 15 minutes or more; departed, arrived: minutes of delay, mean"
        self._console.print(legend, highlight=False)

    def _now_and_then(self, seconds: float) -> Callable[[str], None]:
        next_line = 0.0

        def say(text: str) -> None:
            nonlocal next_line
            if (now := time.monotonic()) >= next_line:
                next_line = now + seconds
                self.say(text)

        return say

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


class Rate:
    """Changes a second, over the last few seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, over: float = _RATE_OVER
    ) -> None:
        self._clock = clock
        self._over = over
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, done: int) -> float:
        now = self._clock()
        self._seen.append((now, done))
        while self._seen[0][0] < now - self._over:
            self._seen.popleft()
        then, before = self._seen[0]
        return (done - before) / (now - then) if now > then else 0.0


def progress(sight: Availability, speed: float) -> str:
    share = sight.done / sight.total if sight.total else 1.0
    return f"{sight.done:>9,} of {sight.total:,} changes {share:5.1%} {speed:>8,.0f}/s"


def in_a_line(sight: Availability, states: Mapping[str, str], rate: Rate) -> str:
    hosts = "  ".join(f"{x} {len(sight.held_by(x))}" for x in states)
    return f"{progress(sight, rate.of(sight.done))}   leases: {hosts}"


def tables_in_a_line(sights: Sequence[TableSight], rate: Rate) -> str:
    tables = "  ".join(f"{x.table} {x.done:,}" for x in sights)
    return f"{tables}  of {_total(sights):,} changes  {_tables_rate(sights, rate)}"


def tables_table(sights: Sequence[TableSight], rate: Rate, elapsed: float) -> RenderableType:
    grid = Table("table", "batches", "", "changes")
    for x in sights:
        bar = ProgressBar(total=max(x.total, 1), completed=x.done, width=30)
        grid.add_row(x.table, str(x.batches), bar, f"{x.done:>9,} of {x.total:,}")
    return Group(grid, Text(f"{elapsed:6.1f} s  {_tables_rate(sights, rate)}"))


def _total(sights: Sequence[TableSight]) -> int:
    return max((x.total for x in sights), default=0)


def _tables_rate(sights: Sequence[TableSight], rate: Rate) -> str:
    """Tell how fast all tables together take changes in."""
    speed = rate.of(sum(x.done for x in sights))
    if any(x.done for x in sights):
        return f"{speed:,.0f}/s"
    return "Spark reads its first batches; a table counts once one is in it, in a minute or two"


def table(sight: Availability, states: Mapping[str, str], rate: Rate) -> RenderableType:
    grid = Table("host", "state", "leases", "ranges")
    for name, state in states.items():
        owned = sight.held_by(name)
        parts = " ".join(x.split(".")[1] for x in owned)
        grid.add_row(name, Text(state, _STYLES.get(state, "")), "■ " * len(owned), parts)
    free = [x for x, owner in sight.owners.items() if owner is None]
    grid.caption = f"{len(free)} leases without an owner" if free else None
    below = Table.grid()
    below.add_row(ProgressBar(total=max(sight.total, 1), completed=sight.done, width=60))
    below.add_row(progress(sight, rate.of(sight.done)))
    return Group(grid, below)


def carriers_table(
    carriers: Mapping[str, Carrier], found: Mapping[str, Mapping[str, Carrier]]
) -> RenderableType:
    """Show the figures, the carriers with the most flights first.

    ``found`` are the figures that others came to, by their names: there is a column for
    each of them, which tells whether it is the same.
    """
    grid = Table(title="What became of the flights, by carrier")
    for heading in ("carrier", "flights", "cancelled", "late", "departed", "arrived", *found):
        words = heading == "carrier" or heading in found
        grid.add_column(heading, justify="left" if words else "right")
    for name, x in sorted(carriers.items(), key=lambda pair: -pair[1].scheduled):
        grid.add_row(
            name,
            f"{x.scheduled:,}",
            _share(x.cancelled, x.scheduled),
            _share(x.late, x.departed),
            _mean(x.departure_delay, x.departed),
            _mean(x.arrival_delay, x.timed_arrivals),
            *(_SAME if x == other.get(name) else _DIFFERS for other in found.values()),
        )
    return grid


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _mean(total: int, count: int) -> str:
    return f"{total / count:+.1f}" if count else "-"
