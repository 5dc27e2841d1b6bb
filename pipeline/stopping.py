"""Being told to stop: once to come to rest, twice to break off."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopping:
    """What asks queries to stop, and the clock they wait by."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._at_once = threading.Event()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def at_once(self) -> bool:
        return self._at_once.is_set()

    def ask(self) -> None:
        """Let batches end and begin none; asked again, wait for nothing more."""
        (self._at_once if self.asked else self._asked).set()

    def wait(self, seconds: float) -> None:
        """Wait until somebody asks for more than has been asked, or time is over."""
        (self._at_once if self.asked else self._asked).wait(seconds)

    def now(self) -> float:
        return time.monotonic()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Take SIGTERM and SIGINT for being asked, until the block is left."""
        signals = (signal.SIGTERM, signal.SIGINT)
        before = {x: signal.signal(x, lambda *_: self.ask()) for x in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
