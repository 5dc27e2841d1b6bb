"""What asks a process to stop. Each process that runs on hears all of it."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

_ONE = 0.1
"""Signals that are fewer seconds apart are one: ``timeout`` sends SIGTERM to a process and its
group, and systemd may send SIGHUP right after SIGTERM. Nobody means "at once" by that.
"""


def each_apart(stop: Callable[[], object]) -> Callable[..., None]:
    """Return a handler of signals that calls ``stop`` once for those that come together."""
    last = -_ONE

    def hear(*_: object) -> None:
        nonlocal last
        before, last = last, monotonic()
        if last - before >= _ONE:
            stop()

    return hear


def stop_signals() -> list[signal.Signals]:
    """Return what asks a process to stop; a hang-up that is ignored (``nohup``) stays so."""
    found = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found


@contextmanager
def on_stop_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` on the running event loop for each of them, until the block is left.

    From then on they end the process, as they would have before.
    """
    loop, numbers, hear = asyncio.get_running_loop(), stop_signals(), each_apart(stop)
    for number in numbers:
        loop.add_signal_handler(number, hear)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
