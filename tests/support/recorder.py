"""An observer that appends what it is handed to a file, change by change, as it gets it.

Tests copy this file beside the log, where the command finds it as it finds users' modules.
Each line is one write to a file opened for appending: it outlives the process, and the
order of the lines is the order in which all processes together were handed the changes.
"""

import asyncio
import json
import os
from collections.abc import Sequence

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason, Context


class Recorder:
    """``pace`` is how many seconds each change takes."""

    def __init__(self, *, path: str = "handed.jsonl", pace: float = 0.01) -> None:
        self._path = path
        self._pace = pace
        self._file = -1

    async def open(self, _context: Context) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        for place, change in enumerate(changes):
            line = {
                "host": context.host,
                "range_id": context.range.id,
                "epoch": context.epoch,
                "sequence": change.sequence,
                "key": change.key,
                "number": change.value()["n"],
                "begins_batch": place == 0,
            }
            os.write(self._file, json.dumps(line).encode() + b"\n")
            await asyncio.sleep(self._pace)

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        os.close(self._file)
