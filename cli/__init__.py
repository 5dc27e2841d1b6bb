"""The command line. ``app`` has the commands, ``exit_codes`` says how they end."""

import errno
import signal
import sys
import threading
from types import FrameType, ModuleType
from typing import Final, cast

from changefeed.cli.streams import discard_output, prepare_streams, write_error
from changefeed.runtime.exit_codes import CLOSED_PIPE, FAILED
from changefeed.runtime.garbage import pause_collections

_received: Final = [signal.SIGINT]


def main() -> None:
    """Run the command line. It ends without a traceback, also if standard output is
    closed, or Ctrl-C comes during the imports.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            # An exception would be lost if it came while a module is imported, now and then.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        prepare_streams()
        pause_collections()
        from changefeed.cli.app import app  # noqa: PLC0415 - it takes a while

        try:
            app()
        except SystemExit as ended:
            if isinstance(ended.__context__, BrokenPipeError):  # of --help: typer makes it 1
                sys.exit(CLOSED_PIPE)
            raise
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(interrupted_code())
    except OSError as error:
        discard_output(sys.stdout)
        if error.errno == errno.EPIPE:
            sys.exit(CLOSED_PIPE)
        write_error(f"changefeed: {error}\n")
        sys.exit(FAILED)


def import_structlog() -> None:
    """Import structlog for a process of ours, without rich, which takes longer than the rest of
    it: structlog draws tracebacks with it, and those of our logs are plain.
    """
    if "rich" not in sys.modules:
        sys.modules["rich"] = cast("ModuleType", None)  # as if it were not installed
        try:
            import structlog  # noqa: F401, PLC0415 - it finds no rich
        finally:
            del sys.modules["rich"]


def raise_interrupts() -> None:
    """Let Ctrl-C, and what else asks a process to stop, be ``KeyboardInterrupt`` from here on:
    all has been imported. So files are closed, and a terminal is as it was before. A program
    that calls commands in a thread keeps its own handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def interrupted_code() -> int:
    """Return the exit code of a command that was asked to stop, as shells have it."""
    return 128 + _received[-1]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now: ``asyncio`` cancels its main task first."""
    _received.append(signal.Signals(number))
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    (on_ctrl_c if callable(on_ctrl_c) else signal.default_int_handler)(number, frame)
