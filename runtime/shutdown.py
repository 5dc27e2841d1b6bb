"""Stopping on a signal, and ending in time: nothing may hold up the end of the process.

The handlers of signals are Python's own and not the event loop's: they run also while
user code blocks the loop. Each sets a deadline, kept by a thread, at which the process
ends whatever still runs in it. A second signal shortens it.

Limits: a call into C code that neither returns nor minds signals, in the main thread,
holds up the handler itself. Then only SIGKILL helps; the leases expire.
"""

import asyncio
import os
import select
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from changefeed.runtime.calls import unexpected_cancellation
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.signals import each_apart, stop_signals

_AT_ONCE = 10.0
"""What may be needed to stop at once: a host cancels, releases, and says goodbye."""

_log = get_logger()


class StopSignals:
    """Passes SIGTERM, SIGINT, SIGHUP and the end of a pipe on to what is to stop.

    That is the task that made this, which is cancelled, until ``on_stop`` names a function.
    ``budget`` is how many seconds an orderly stop takes at the most.
    """

    def __init__(self, *, budget: float) -> None:
        task = asyncio.current_task()
        assert task is not None, "made by the task that starts"
        self._loop = asyncio.get_running_loop()
        self._stop: Callable[[], object] = task.cancel
        self._budget = budget
        self._heard = 0

    def on_stop(self, stop: Callable[[], object]) -> None:
        """Call ``stop`` for each signal from now on."""
        self._stop = stop

    async def wait(self) -> None:
        """Wait for the next signal, which cancels nothing."""
        heard = asyncio.Event()
        self.on_stop(heard.set)
        await heard.wait()

    @contextmanager
    def installed(self, suspect: str = "other code") -> Iterator[None]:
        """Handle signals until the block is left.

        Raise a ``Failure`` that names the ``suspect`` if the block was cancelled though no
        signal was heard.
        """
        hear = each_apart(self._hear)
        before = {x: signal.signal(x, hear) for x in stop_signals()}
        try:
            yield
        except asyncio.CancelledError as error:
            if self._heard:
                raise
            raise unexpected_cancellation("the main task", suspect) from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def end_of(self, stream: TextIO | None) -> Iterator[None]:
        """Take the end of a pipe for a signal: the process at its other end is gone.

        Raise ``UserError`` for what is no pipe, and for a stream that was closed.
        """
        file = _pipe(stream)

        def read() -> None:
            if not os.read(file, 4096):
                self._loop.remove_reader(file)
                self._hear()

        self._loop.add_reader(file, read)
        try:
            yield
        finally:
            self._loop.remove_reader(file)

    def _hear(self) -> None:
        self._heard += 1
        exit_after(_AT_ONCE + (self._budget if self._heard == 1 else 0), 1)
        with suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._pass_on)

    def _pass_on(self) -> None:
        self._stop()  # read only now: it may have been replaced


def _pipe(stream: TextIO | None) -> int:
    if stream is None:
        raise UserError("--stop-at-eof reads standard input, which is closed: leave it out")
    try:
        with selectors.DefaultSelector() as trying:
            trying.register(stream.fileno(), selectors.EVENT_READ)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--stop-at-eof needs a pipe as standard input ({error}): leave it out"
        ) from error
    return stream.fileno()


def output_is_unread() -> bool:
    """Whether standard output is a pipe, or a socket, whose reader has gone."""
    polling = select.poll()
    polling.register(1, 0)  # errors come unasked
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in polling.poll(0))


def exit_after(seconds: float, code: int) -> None:
    """End the process after ``seconds`` with ``code``, if it has not ended by then."""

    def wait() -> None:
        time.sleep(seconds)
        stuck = sorted(x.name for x in threading.enumerate() if _holds_up(x))
        _log.error("process.stuck", still_running=stuck, advice="ended without them")
        for stream in (sys.stderr, sys.stdout):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    threading.Thread(target=wait, name="exit-after", daemon=True).start()


def _holds_up(thread: threading.Thread) -> bool:
    return not thread.daemon and thread.is_alive()
