"""What a call raised that no task waits for any more: it goes to the log."""

from typing import Protocol

from changefeed.observers.error_text import kind_of, text_of, trace_of
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


class Ended(Protocol):
    """A task, or a future of either kind, that is done."""

    def cancelled(self) -> bool: ...

    def exception(self) -> BaseException | None: ...


def log_what_nobody_awaits(ended: Ended) -> None:
    """Write what it raised to the log, if it raised anything."""
    if ended.cancelled() or (error := ended.exception()) is None:
        return
    _log.warning(
        "observer failed after it was cancelled",
        error=text_of(error),
        kind=kind_of(error),
        trace=trace_of(error),
    )
