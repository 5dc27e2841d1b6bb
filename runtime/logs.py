"""Logs on standard error: one line for each thing that happens, ours and the user's alike.

Everything goes through the standard library's ``logging``, so lines that user code writes
there come out in the same form, and any handler sees all of them.
"""

import logging
import sys
from collections.abc import Sequence
from typing import Literal

import structlog
from structlog.typing import Processor

from changefeed.runtime.settings import LogSettings

Form = Literal["json", "console"]

_TALKATIVE = {
    "aiosqlite": logging.INFO,  # at "debug" they tell of every call
    "asyncio": logging.INFO,
    "azure": logging.WARNING,  # at "info" it tells of every request, in thirty lines
    "py4j": logging.WARNING,  # at "info" it tells of every call, and how Java went away
}


def set_up_logs(settings: LogSettings, more: Sequence[logging.Handler] = ()) -> None:
    """Send all logs to standard error, and to the handlers ``more``."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(form_of(settings, terminal=sys.stderr.isatty())),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[lines, *more], force=True)
    logging.captureWarnings(True)
    for name, least in _TALKATIVE.items():
        logging.getLogger(name).setLevel(max(level, least))


def form_of(settings: LogSettings, *, terminal: bool) -> Form:
    if settings.format == "auto":
        return "console" if terminal else "json"
    return settings.format


def _rendering(form: Form) -> list[Processor]:
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    return [
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    ]
