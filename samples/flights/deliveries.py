"""Reading what the observers wrote down, lease after lease."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One change, as an observer got it. ``ends_batch``: the observer was done up to here."""

    sequence: int
    flight: str
    kind: str
    key: str
    at_us: int
    ends_batch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One owner's time with one range, from taking the lease to giving it up or dying."""

    range: str
    epoch: int
    host: str
    deliveries: Sequence[Delivery]


def turns(directory: Path) -> Iterator[Turn]:
    """Yield all turns, those of a range one after the other, as they were."""
    for folder in sorted(x for x in directory.iterdir() if x.is_dir()):
        for path in sorted(folder.glob("*.tsv")):
            epoch, _, host = path.stem.partition(".")
            yield Turn(
                range=folder.name,
                epoch=int(epoch),
                host=host,
                deliveries=tuple(_deliveries(path)),
            )


def _deliveries(path: Path) -> Iterator[Delivery]:
    """Read up to the last whole line: a killed host may have left half a line behind it."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line != "=":
            sequence, flight, kind, key, at_us = line.split("\t")
            yield Delivery(int(sequence), flight, kind, key, int(at_us), following == "=")
