"""Seconds that pass while the machine is suspended, too.

``CLOCK_MONOTONIC``, which event loops and ``time.monotonic`` use, pauses then; other machines'
clocks do not. Use this clock for what other hosts conclude from our silence.

Limits: timers of the event loop still pause, so a wait ends late by as long as
the machine was suspended; look at the clock after it. Without ``CLOCK_BOOTTIME`` (only Linux
has it) this is the loop's own time.
"""

import asyncio
import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since some moment, never going back."""

_MAX_DIFFERENCE = 1.0  # between two clocks that are one, read one after the other


def elapsed_time() -> float:
    """Return the time by ``CLOCK_BOOTTIME``; on a loop with a clock of its own, by that.

    To be called on the event loop. A loop of tests, whose time is virtual, is recognized by
    its time being no time of this machine.
    """
    now = asyncio.get_running_loop().time()
    if _BOOTTIME is None or abs(now - time.monotonic()) > _MAX_DIFFERENCE:
        return now
    return time.clock_gettime(_BOOTTIME)


def wall_clock_us() -> int:
    """Return the time of day in microseconds since 1970; it may go back."""
    return time.time_ns() // 1000


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)
