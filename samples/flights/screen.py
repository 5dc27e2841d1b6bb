"""What people see: a live table on a terminal, a line now and then elsewhere."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .observer import Carrier
from .proof import Proof, in_words
from .watch import Sight

_SECONDS_BETWEEN_LINES = 2.0
_RATE_OVER = 3.0  # seconds: long enough to be readable, short enough to show a failover

_STYLES = {"running": "green", "killed": "bold red", "stopping": "yellow", "stopped": "dim"}

Show = Callable[[Sight, Mapping[str, str]], None]
"""Shows the leases, and what became of each host."""


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
            yield self._lines(rate)
            return
        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda sight, states: live.update(table(sight, states, rate), refresh=True)

    def result(self, proof: Proof, carriers: Mapping[str, Carrier]) -> None:
        self._console.print(carriers_table(carriers))
        legend = "late: 15 minutes or more; departed, arrived: minutes of delay, mean\n"
        self._console.print(legend, highlight=False)
        self._console.print(in_words(proof), highlight=False, markup=False, soft_wrap=True)

    def _lines(self, rate: "Rate") -> Show:
        next_line = 0.0

        def show(sight: Sight, states: Mapping[str, str]) -> None:
            nonlocal next_line
            speed, now = rate.of(sight.done), time.monotonic()
            if now >= next_line:
                next_line = now + _SECONDS_BETWEEN_LINES
                hosts = "  ".join(f"{x} {len(sight.held_by(x))}" for x in states)
                self.say(f"{progress(sight, speed)}   leases: {hosts}")

        return show

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


class Rate:
    """Changes a second, over the last few seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, done: int) -> float:
        now = self._clock()
        self._seen.append((now, done))
        while self._seen[0][0] < now - _RATE_OVER:
            self._seen.popleft()
        then, before = self._seen[0]
        return (done - before) / (now - then) if now > then else 0.0


def progress(sight: Sight, speed: float) -> str:
    share = sight.done / sight.total if sight.total else 1.0
    return f"{sight.done:>9,} of {sight.total:,} changes {share:5.1%} {speed:>8,.0f}/s"


def table(sight: Sight, states: Mapping[str, str], rate: Rate) -> RenderableType:
    grid = Table("host", "state", "leases", "ranges")
    for name, state in states.items():
        held = sight.held_by(name)
        parts = " ".join(x.split(".")[1] for x in held)
        grid.add_row(name, Text(state, _STYLES.get(state, "")), "■ " * len(held), parts)
    free = [x for x, owner in sight.owners.items() if owner is None]
    grid.caption = f"{len(free)} leases without an owner" if free else None
    below = Table.grid()
    below.add_row(ProgressBar(total=max(sight.total, 1), completed=sight.done, width=60))
    below.add_row(progress(sight, rate.of(sight.done)))
    return Group(grid, below)


def carriers_table(carriers: Mapping[str, Carrier]) -> RenderableType:
    """Show the figures, the carriers with the most flights first."""
    grid = Table(title="What the observers found, by carrier")
    for heading in ("carrier", "flights", "cancelled", "late", "departed", "arrived"):
        grid.add_column(heading, justify="left" if heading == "carrier" else "right")
    for name, x in sorted(carriers.items(), key=lambda pair: -pair[1].scheduled):
        grid.add_row(
            name,
            f"{x.scheduled:,}",
            _share(x.cancelled, x.scheduled),
            _share(x.late, x.departed),
            _mean(x.departure_delay, x.departed),
            _mean(x.arrival_delay, x.timed_arrivals),
        )
    return grid


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _mean(total: int, count: int) -> str:
    return f"{total / count:+.1f}" if count else "-"
