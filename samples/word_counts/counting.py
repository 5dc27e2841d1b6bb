"""How often each word was said, written down now and then: checkpoints by hand.

To write all counts after each batch would be a lot of writing for little news. So this
observer counts in memory, and a task of its own writes the counts every ``seconds``,
together with the sequence up to which they count; only then it says how far it is done.
Whatever ends the process, the file is never behind the checkpoint: what comes again is
passed over. What spammers said is acknowledged alone, at once; the checkpoint passes it
when all before it is done.

The task is needed: nothing is delivered any more when the host stops, or the lease is to
move, and the worker then waits for what is not acknowledged. So it looks at
``context.handing_over``, too.

In the folder of each range there is a file for each epoch. A new owner reads the newest
and goes on in its own: a former owner that wakes up late writes where nobody looks any
more, and its checkpoints are refused.

Needs ``observer.checkpoint=manual``, and one key at a time (``observer.concurrency=1``).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Never

import msgspec
import structlog

from changefeed import Change, CloseReason, Context

_LOOK = 0.1

_log = structlog.get_logger(__name__)


class Totals(msgspec.Struct, kw_only=True):
    """The words of one range, up to a sequence."""

    up_to: int = 0
    words: dict[str, int] = {}


class WordCounts:
    """Keeps the totals of each range in a folder of ``directory``."""

    def __init__(self, directory: str, *, seconds: float = 1.0) -> None:
        self._directory = Path(directory)
        self._seconds = seconds
        self._last: Change | None = None

    async def open(self, context: Context) -> None:
        folder = self._directory / context.range.id
        folder.mkdir(parents=True, exist_ok=True)
        totals = newest_totals(folder)
        self._up_to, self._words = totals.up_to, Counter(totals.words)
        self._file = folder / f"{context.epoch:06}.json"
        self._writing = asyncio.create_task(self._write_now_and_then(context))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        for change in changes:
            line = change.value()
            if line["by"] == "spammer":
                context.acknowledge(change)
                continue
            if change.sequence > self._up_to:
                self._words.update(line["text"].lower().split())
                self._up_to = change.sequence
            self._last = change

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context, reason  # what is not written down by now comes again
        self._writing.cancel()

    async def _write_now_and_then(self, context: Context) -> Never:
        clock = asyncio.get_running_loop().time
        written = clock()
        while True:
            await asyncio.sleep(_LOOK)
            due = clock() - written >= self._seconds or context.handing_over
            if due and self._last is not None:
                try:
                    await self._write_down(context, self._last)
                except OSError as error:
                    _log.warning(
                        "counts not written", error=str(error)
                    )  # the next turn is soon
                written = clock()

    async def _write_down(self, context: Context, last: Change) -> None:
        totals = msgspec.json.encode(Totals(up_to=self._up_to, words=dict(self._words)))
        await asyncio.to_thread(_replace, self._file, totals)
        context.checkpoint(last)
        if self._last is last:
            self._last = None


def _replace(file: Path, content: bytes) -> None:
    """Replace the file as a whole: a killed process leaves the old one, or the new."""
    aside = file.with_suffix(".new")
    aside.write_bytes(content)
    aside.replace(file)


def newest_totals(folder: Path) -> Totals:
    """Read what the last epoch left in the folder of a range."""
    newest = max(folder.glob("*.json"), default=None)
    if newest is None:
        return Totals()
    return msgspec.json.decode(newest.read_bytes(), type=Totals)
