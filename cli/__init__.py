"""The command line. ``app`` has the commands, ``exit_codes`` says how they end."""

import errno
import signal
import sys

from changefeed.cli.streams import discard_output, prepare_streams, write_error

_FAILED = 1
_INTERRUPTED = 130  # as shells have it: 128, and the number of SIGINT


def main() -> None:
    """Run the command line. It ends without a traceback, also if standard output is
    closed, or Ctrl-C comes during the imports.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # An exception would be lost if it came while a module is imported, now and then.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        prepare_streams()
        from changefeed.cli.app import app  # noqa: PLC0415 - it takes a while

        try:
            app()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except OSError as error:
        discard_output(sys.stdout)
        if error.errno != errno.EPIPE:  # who reads our output has enough of it
            write_error(f"changefeed: {error}\n")
        sys.exit(_FAILED)


def raise_interrupts() -> None:
    """Let Ctrl-C be ``KeyboardInterrupt`` from here on: all has been imported."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
