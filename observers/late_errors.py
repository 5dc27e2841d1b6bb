"""What a call raised that no task waits for any more: it goes to the log."""

import asyncio
import concurrent.futures
from typing import Any

from changefeed.observers.error_text import kind_of, text_of, trace_of
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)


def log_late_error(ended: asyncio.Future[Any] | concurrent.futures.Future[Any]) -> None:
    """Write what a call raised to the log, if it raised anything."""
    if ended.cancelled() or (error := ended.exception()) is None:
        return
    _log.warning(
        "observer failed after it was cancelled",
        error=text_of(error),
        kind=kind_of(error),
        trace=trace_of(error),
    )
