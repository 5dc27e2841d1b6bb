"""Requests to stop: the first drains, the second cancels."""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.runtime.signals import stop_signals

_STEP = 0.05


class Stopping:
    """What asks queries to stop, and the clock they wait by."""

    def __init__(self) -> None:
        # Plain numbers: a signal's handler must not wait for a lock that its thread holds.
        self._times = 0

    @property
    def asked(self) -> bool:
        return self._times > 0

    @property
    def at_once(self) -> bool:
        return self._times > 1

    def ask(self) -> None:
        """Let batches end and begin none; asked again, wait for nothing more."""
        self._times += 1

    def wait(self, seconds: float) -> None:
        """Wait until somebody asks for more than has been asked, or time is over."""
        asked, until = self._times, time.monotonic() + seconds
        while self._times == asked and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _STEP))

    def now(self) -> float:
        return time.monotonic()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Take what asks a process to stop for being asked, until the block is left."""
        before = {x: signal.signal(x, lambda *_: self.ask()) for x in stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
