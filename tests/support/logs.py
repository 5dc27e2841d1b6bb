"""What the code under test logs, as values."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from changefeed.runtime.logs import LogEvent


class _Collecting(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        values = record.msg if isinstance(record.msg, LogEvent) else {"event": str(record.msg)}
        self.events.append({**values, "log_level": record.levelname.lower()})


@contextmanager
def captured_logs(level: str = "INFO") -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged under ``changefeed``, from ``level`` up."""
    logger, handler = logging.getLogger("changefeed"), _Collecting()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield handler.events
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
