"""The observer: it writes down what it was given, as one line of JSON for each change."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from changefeed import Change, CloseReason, Context


class Seen:
    """Appends to ``file``, which all hosts share; each batch is one write."""

    def __init__(self, file: str, pace: float = 0.002) -> None:
        self._path = Path(file)
        self._pace = pace

    def open(self, context: Context) -> None:
        del context
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        time.sleep(self._pace * len(changes))
        lines = [(context.host, x.range_id, x.sequence, x.value()["n"]) for x in changes]
        os.write(self._file, b"".join(msgspec.json.encode(x) + b"\n" for x in lines))

    def close(self, context: Context, reason: CloseReason) -> None:
        del context, reason
        os.close(self._file)
