"""The observer: it keeps the delays and cancellations of each carrier.

Delivery is at least once, so what it counts must not count twice. It keeps the figures of
its range together with the sequence up to which they count, in one file that is replaced
as a whole, and passes over what it has counted before. When the lease moves, the next
owner reads the file of the newest epoch and goes on in one of its own: a former owner that
wakes up late writes where nobody looks any more.

It also writes down each delivery, so that ``proof`` can tell afterwards what was delivered
in which order, and how often. A line is sequence, flight, kind, key and time, with tabs
between them; a line ``=`` ends a batch. In the folder of each range:

    000003.json        the figures as epoch 3 left them
    000003.demo-2.tsv  what was delivered in epoch 3, to host demo-2

Limits: what is written has been handed to the operating system, which outlives a killed
process; for a loss of power it would have to be synced as well.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from changefeed.feeds.feed import Change
from changefeed.observers.observer import Context

from .changes import Kind, State

LATE = 15
"""A departure counts as late from so many minutes on, as the authorities count it."""

_read_state = msgspec.json.Decoder(State).decode


class Carrier(msgspec.Struct, kw_only=True):
    """What one carrier's flights came to. Delays are in minutes, and early ones negative."""

    scheduled: int = 0
    cancelled: int = 0
    departed: int = 0
    late: int = 0
    departure_delay: int = 0
    arrived: int = 0
    timed_arrivals: int = 0
    arrival_delay: int = 0

    def add(self, state: State) -> None:
        match state.kind:
            case Kind.SCHEDULED:
                self.scheduled += 1
            case Kind.CANCELLED:
                self.cancelled += 1
            case Kind.DEPARTED:
                delay = state.delay or 0
                self.departed += 1
                self.late += delay >= LATE
                self.departure_delay += delay
            case Kind.ARRIVED:
                self.arrived += 1
                self.timed_arrivals += state.delay is not None
                self.arrival_delay += state.delay or 0


class Figures(msgspec.Struct, kw_only=True):
    """The figures of one range, by carrier, and the last sequence that is in them."""

    up_to: int = 0
    carriers: dict[str, Carrier] = {}

    def add(self, change: Change, state: State) -> None:
        """Count a change, unless it was counted before."""
        if change.sequence <= self.up_to:
            return
        self.up_to = change.sequence
        self.carriers.setdefault(state.carrier, Carrier()).add(state)


class CarrierDelays:
    """Keeps figures and deliveries of each range in a folder of ``directory``.

    ``rate``, if given, is how many changes a second each range may take at the most.
    """

    def __init__(self, directory: str, *, rate: float | None = None) -> None:
        self._directory = Path(directory)
        self._rate = rate
        self._figures = Figures()

    def open(self, context: Context) -> None:
        folder = self._directory / context.range.id
        folder.mkdir(parents=True, exist_ok=True)
        self._figures = newest_figures(folder)
        self._file = folder / f"{context.epoch:06}.json"
        self._deliveries = folder / f"{context.epoch:06}.{context.host}.tsv"
        self._keep()

    def process(self, changes: Sequence[Change]) -> None:
        lines = []
        for change in changes:
            state = _read_state(change.body)
            self._figures.add(change, state)
            lines.append(
                f"{change.sequence}\t{change.id}\t{state.kind}\t{change.key}"
                f"\t{change.committed_us}\n"
            )
        with self._deliveries.open("a", encoding="utf-8") as file:
            file.write(f"{''.join(lines)}=\n")
        self._keep()
        if self._rate is not None:
            time.sleep(len(changes) / self._rate)

    def _keep(self) -> None:
        """Replace the file as a whole: a killed process leaves the old one, or the new."""
        aside = self._file.with_suffix(".new")
        aside.write_bytes(msgspec.json.encode(self._figures))
        aside.replace(self._file)


def newest_figures(folder: Path) -> Figures:
    """Read what the last epoch left in the folder of a range."""
    newest = max(folder.glob("*.json"), default=None)
    if newest is None:
        return Figures()
    return msgspec.json.decode(newest.read_bytes(), type=Figures)
