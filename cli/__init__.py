"""The command line. ``app`` has the commands, ``exit_codes`` says how they end."""

import errno
import os
import signal
import sys
from io import TextIOWrapper

_FAILED = 1
_INTERRUPTED = 130  # as shells have it: 128, and the number of SIGINT


def main() -> None:
    """Run the command line. It ends without a traceback, also if standard output is
    closed, or Ctrl-C comes during the imports.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An exception would be lost if it came while a module is imported, now and then.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _fill_closed_streams()
        for stream in (sys.stdin, sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # else it is closed, or another's
                stream.reconfigure(errors="backslashreplace")
        from changefeed.cli.app import app  # noqa: PLC0415 - it takes a while

        try:
            app()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        _leave_output()
        if error.errno != errno.EPIPE:  # who reads our output has enough of it
            sys.stderr.write(f"changefeed: {error}\n")
        sys.exit(_FAILED)


def raise_interrupts() -> None:
    """Let Ctrl-C be ``KeyboardInterrupt`` from here on: all has been imported."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _fill_closed_streams() -> None:
    """Open what is closed on nothing: else a database gets its number, and what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _leave_output() -> None:
    """Let Python not try again, at the end of the process, to write what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
