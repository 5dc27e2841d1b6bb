"""What observers in host processes were given, and when: one file for each host.

The observer writes a line before it works on a batch and one after, each with one write,
so that a killed host leaves whole lines. Times are of the monotonic clock, which all
processes of one machine share. Sequences of an event log are dense, so a batch is told by
its first and last.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from time import monotonic

import msgspec

from changefeed.feeds.feed import Change, RangeId
from changefeed.observers.observer import CloseReason, Context
from changefeed.testing.history import Tenures

_FILE = "{}.deliveries"


class Recorder:
    """The observer: it waits for ``seconds`` with each batch, and records."""

    def __init__(self, directory: str, seconds: float = 0.0) -> None:
        self._directory = Path(directory)
        self._seconds = seconds

    async def open(self, context: Context) -> None:
        path = self._directory / _FILE.format(context.host)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        batch = (context.range.id, context.epoch, changes[0].sequence, changes[-1].sequence)
        self._write("began", *batch, monotonic())
        await asyncio.sleep(self._seconds)
        self._write("ended", *batch, monotonic())

    async def close(self, _: Context, __: CloseReason) -> None:
        os.close(self._file)

    def _write(self, *line: object) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A batch that a host was given. ``ended`` is ``None`` if it did not finish it."""

    host: str
    range_id: RangeId
    first: int
    last: int
    began: float
    ended: float | None

    @property
    def changes(self) -> int:
        return self.last - self.first + 1


_Line = tuple[str, RangeId, int, int, int, float]
_decode = msgspec.json.Decoder(_Line).decode


def read_deliveries(directory: Path) -> Sequence[Delivery]:
    """Return all that was recorded so far, in the order of its beginning."""
    found: list[Delivery] = []
    for path in directory.glob(_FILE.format("*")):
        lines = [_decode(x) for x in path.read_bytes().splitlines(keepends=True) if b"]\n" in x]
        ends = {x[1:5]: x[5] for x in lines if x[0] == "ended"}
        found += [
            Delivery(
                host=path.stem,
                range_id=line[1],
                first=line[3],
                last=line[4],
                began=line[5],
                ended=ends.get(line[1:5]),
            )
            for line in lines
            if line[0] == "began"
        ]
    return sorted(found, key=lambda x: x.began)


def by_range(deliveries: Iterable[Delivery]) -> Mapping[RangeId, Sequence[Delivery]]:
    grouped: defaultdict[RangeId, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        grouped[delivery.range_id].append(delivery)
    return grouped


def by_turn(deliveries: Sequence[Delivery]) -> Sequence[int]:
    """Count the changes of one range that came again, for each host that had its turn.

    Raise ``AssertionError`` if any change was left out, or came again in the middle of a turn.
    """
    tenures = Tenures()
    counts: list[int] = []
    for turn, (_, batches) in enumerate(groupby(deliveries, key=lambda x: x.host)):
        given = [tenures.given(x.range_id, turn, x.first, x.last) for x in batches]
        assert not any(x.problems for x in given), [*chain(*(x.problems for x in given))]
        counts.append(sum(x.again for x in given))
    return counts


def duplicates(deliveries: Iterable[Delivery]) -> int:
    return sum(sum(by_turn(x)) for x in by_range(deliveries).values())
