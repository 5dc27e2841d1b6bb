"""What asks a process to stop. Each process that runs on hears all of it."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
    loop, numbers = asyncio.get_running_loop(), stop_signals()
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
