"""Ends the process when its event loop has not turned for longer than its leases live.

By then these are others' to take, and whatever holds up the loop holds up all ranges, the
heartbeats, and an orderly stop. A timer of the kernel is set anew with each turn; its signal
(SIGALRM) is heard also while an endless loop or regular expression runs. A process that was
frozen hears it when it wakes up, so the loop has a moment to turn then.

Limits: a call into C code that minds no signals is not ended, nor seen by any thread of Python
while it holds the interpreter. The leases expire all the same, and others count a death. An
observer that sets an alarm of its own turns this one off until the next turn.
"""

import asyncio
import gc
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Never

from changefeed.runtime.exit_codes import STOOD_STILL
from changefeed.runtime.logs import get_logger

_TURN = 0.5
_MOMENT = 0.1
"""Of the time: how long a process that has woken up has for its next turn."""

_log = get_logger()


class Watchdog:
    """``seconds`` is how long the loop may stand still. ``in_hand`` tells what the user's code
    works on, for the log.
    """

    def __init__(self, seconds: float, in_hand: Callable[[], Mapping[Any, str]]) -> None:
        self._seconds = seconds
        self._in_hand = in_hand
        self._barked = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Hear the timer within the block, in the main thread."""
        before = signal.signal(signal.SIGALRM, self._hear)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    async def run(self) -> Never:
        """Show that the loop turns."""
        while True:
            self._barked = False
            signal.setitimer(signal.ITIMER_REAL, self._seconds)
            await asyncio.sleep(_TURN)

    def _hear(self, _number: int, frame: FrameType | None) -> None:
        if not self._barked:
            self._barked = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds * _MOMENT)
            return
        _log.error(
            "process.stuck",
            seconds=self._seconds,
            in_hand=dict(self._in_hand()),
            stacks=_stacks(frame),
            advice="user code blocks the event loop: the process ends, so that others go on",
        )
        for stream in (sys.stderr, sys.stdout):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(STOOD_STILL)


def _stacks(interrupted: FrameType | None) -> Mapping[str, str]:
    """Return the stack of each thread by its name; of the main one, what was interrupted."""
    main = threading.main_thread()
    names = {x.ident: x.name for x in threading.enumerate()}
    collects = gc.isenabled()
    gc.disable()  # Python 3.11 waits for itself for ever if it collects garbage in here
    try:
        frames = sys._current_frames()  # noqa: SLF001 - how it is documented
    finally:
        if collects:
            gc.enable()
    return {
        names.get(ident, str(ident)): "".join(
            traceback.format_stack(interrupted if ident == main.ident else frame)
        )
        for ident, frame in frames.items()
    }
