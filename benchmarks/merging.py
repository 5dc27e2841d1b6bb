"""How the time of a merge grows with the table it is merged into.

Without Spark: this is what ``deltalake`` does in the driver. 10,000 rows are merged into
tables of 10 thousand to a million rows of about 200 bytes; the median of a few merges.
*Spread*: the keys of a batch are anywhere in the table, so every file is written again.
*Near*: they lie side by side, in a table that was written in the order of its keys, so most
files are not even read.
"""

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median

import pyarrow as pa
from deltalake import write_deltalake

from changefeed.pipeline.tables.latest import MERGE
from changefeed.pipeline.tables.merge import merge_here

from .result import Result

_SIZES = (10_000, 100_000, 1_000_000)
_BATCH = 10_000
_FILE = 100_000
_TIMES = 5


def measure() -> Sequence[Result]:
    return [x for size in _SIZES for x in _merges(size)]


def _merges(size: int) -> Iterator[Result]:
    random = Random(size)
    begin = random.randrange(size - _BATCH + 1)
    batches: dict[str, Sequence[Iterable[int]]] = {
        "spread": [random.sample(range(size), _BATCH) for _ in range(_TIMES)],
        "near": [range(begin, begin + _BATCH) for _ in range(_TIMES)],
    }
    for name, keys in batches.items():
        seconds = median(_seconds(size, keys))
        yield Result(name=f"merging.{name}.{size}_rows", value=seconds, unit="s")


def _seconds(size: int, batches: Sequence[Iterable[int]]) -> Iterator[float]:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        table = str(Path(directory) / "latest")
        for first in range(0, size, _FILE):
            rows = _rows(range(first, min(first + _FILE, size)), 0)
            write_deltalake(table, rows, mode="append")
        for number, keys in enumerate(batches):
            rows = _rows(keys, number + 1)
            began = time.perf_counter()
            merge_here(table, rows, MERGE)
            yield time.perf_counter() - began


def _rows(keys: Iterable[int], sequence: int) -> pa.Table:
    random = Random(sequence)
    return pa.Table.from_pylist(
        [
            {
                "key": f"key-{n:08}",
                "id": f"item-{n:08}",
                "generation": 0,
                "sequence": sequence,
                "body": f'{{"n": {n}, "text": "{random.randbytes(80).hex()}"}}',
                "deleted": False,
            }
            for n in keys
        ]
    )
