"""What a fleet of processes was handed, and whether that may have happened.

Knows nothing of what went wrong meanwhile. A history is in the order of its happening;
the changes of a range are numbered without gaps, and the numbers of a key only grow.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """One change that an observer was handed, and whether a batch began with it."""

    pid: int
    host: str
    range_id: str
    epoch: int
    sequence: int
    key: str
    number: int
    begins_batch: bool


History = Sequence[Handed]


def read_history(path: Path) -> History:
    """Read what ``tests.support.recorder`` has written; nothing, if there is no file.

    A line that is being written, or whose writer was killed, is not there yet.
    """
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [msgspec.json.decode(x, type=Handed) for x in whole.splitlines()]


def violations(
    history: History, appended: Mapping[str, Sequence[int]], *, repeats: int
) -> list[str]:
    """Say what must not have happened.

    ``appended`` are the numbers of each key, in order. Whoever takes a range over may be
    handed up to ``repeats`` changes of it again.
    """
    return [
        *_lost(history, appended),
        *_skipped(history, appended),
        *_gaps(history),
        *_too_often(history, repeats),
        *_by_zombies(history),
    ]


def repeated(history: History) -> int:
    """Count the deliveries beyond the first of each change."""
    return len(history) - len({(x.range_id, x.sequence) for x in history})


def _lost(history: History, appended: Mapping[str, Sequence[int]]) -> Iterator[str]:
    handed = {(x.key, x.number) for x in history}
    missing = {(key, n) for key, numbers in appended.items() for n in numbers} - handed
    if missing:
        yield f"{len(missing)} changes were never handed to anybody: {sorted(missing)[:5]}"


def _skipped(history: History, appended: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Find what came before an earlier change of its key. Repeats may only go back."""
    place = {(key, n): at for key, numbers in appended.items() for at, n in enumerate(numbers)}
    reached: dict[str, int] = defaultdict(int)
    for x in history:
        at = place[x.key, x.number]
        if at > reached[x.key]:
            yield f"{x} came before an earlier change of its key"
        reached[x.key] = max(reached[x.key], at + 1)


def _gaps(history: History) -> Iterator[str]:
    """Find where an owner was not handed one change after the other."""
    last: dict[tuple[str, int], int] = {}
    for x in history:
        tenure = (x.range_id, x.epoch)
        if tenure in last and x.sequence != last[tenure] + 1:
            yield f"{x} came right after sequence {last[tenure]}, to the same owner"
        last[tenure] = x.sequence


def _too_often(history: History, repeats: int) -> Iterator[str]:
    reached: dict[str, int] = defaultdict(int)
    begun = set[tuple[str, int]]()
    for x in history:
        tenure = (x.range_id, x.epoch)
        if tenure not in begun:
            begun.add(tenure)
            again = reached[x.range_id] - x.sequence + 1
            if again > repeats:
                yield f"{x} begins an epoch with {again} repeated changes, {repeats} may be"
        reached[x.range_id] = max(reached[x.range_id], x.sequence)


def _by_zombies(history: History) -> Iterator[str]:
    """Find batches that began under an epoch that was over: a later one had begun."""
    epoch: dict[str, int] = defaultdict(int)
    for x in history:
        if x.begins_batch and x.epoch < epoch[x.range_id]:
            yield f"{x} began a batch although epoch {epoch[x.range_id]} had begun"
        epoch[x.range_id] = max(epoch[x.range_id], x.epoch)
