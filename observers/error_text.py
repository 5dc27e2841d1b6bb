"""What an error of users' code says, in a form that all can take who show or keep it.

The text of an exception may be anything. Its ``__str__`` may raise, now or the next time. It
may be of megabytes, which to log, or to look through character by character, would hold up the
event loop until leases are lost. And it may hold what no log, database or terminal takes: half
of a surrogate pair, NUL, control characters. So what shows or keeps a text takes it from
here: cut, and with an escape for what is not plain.

Limits: the text is made whole before it is cut, by the user's own code.
"""

import asyncio
import concurrent.futures
import traceback
from collections.abc import Callable
from typing import Any

from changefeed.observers.errors import AttemptFailed
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

MAX_TEXT = 4000
"""In characters; what is longer says how long it was."""

_MAX_KIND = 200
_MAX_TRACE = 20_000
_ESCAPES = {
    code: f"\\x{code:02x}"
    for code in (*range(0x20), *range(0x7F, 0xA0))
    if chr(code) not in "\n\t"
}


def kind_of(error: BaseException) -> str:
    """Return the name of the class that the user's code raised."""
    if type(error) is AttemptFailed:
        return error.kind
    return _said(lambda: _tidy(type(error).__name__, _MAX_KIND))


def text_of(error: BaseException) -> str:
    """Return what it says, without its class: plain, and ``MAX_TEXT`` at most."""
    if type(error) is AttemptFailed:
        return error.text
    return _said(lambda: _tidy(str(error), MAX_TEXT))


def describe(error: BaseException) -> str:
    """Return its class, and what it says if it says anything."""
    kind, text = kind_of(error), text_of(error)
    return f"{kind}: {text}" if text else kind


def trace_of(error: BaseException) -> str:
    """Return its traceback, or the end of a long one."""
    raised = error.__cause__ if type(error) is AttemptFailed else None
    return _said(lambda: _trace(raised or error))


def _trace(error: BaseException) -> str:
    """Cut piece by piece, or the frames would get lost before a text of megabytes."""
    pieces = traceback.TracebackException.from_exception(error).format()
    tidy = [_tidy(x.removesuffix("\n"), MAX_TEXT) for x in pieces]
    return "\n".join(tidy)[-_MAX_TRACE:]


def _said(say: Callable[[], str]) -> str:
    """Ask for a text that may raise anything."""
    try:
        return say()
    except BaseException as failure:  # noqa: BLE001 - the border to the user's code
        return f"(its text cannot be had: {type(failure).__name__})"


def _tidy(text: str, longest: int) -> str:
    """Cut it, write what is not plain as an escape, and let no class of the user's be left."""
    short = _cut(text, longest)
    plain = str.encode(short, "utf-8", "backslashreplace").decode().translate(_ESCAPES)
    return _cut(plain, longest)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    note = f"… (cut; {len(text)} characters in all)"
    return text[: longest - len(note)] + note


def log_late_error(ended: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    """Write what a call raised to the log, if no task waits for it any more."""
    if ended.cancelled() or (error := ended.exception()) is None:
        return
    _log.warning(
        "observer failed after it was cancelled",
        error=text_of(error),
        kind=kind_of(error),
        trace=trace_of(error),
    )
