"""Logs on standard error, in the form of the host's: one line for each thing that happens.

JSON, or for people on a terminal. Tasks on executors write there, too: Spark keeps it.
"""

import logging
import sys

import structlog
from structlog.typing import Processor

from .settings import LogSettings

_QUIET = ("asyncio", "py4j", "azure")


def set_up_logs(settings: LogSettings) -> None:
    """Send all logs of this process to standard error, those of user code as well."""
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(settings, terminal=sys.stderr.isatty()),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[lines], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _rendering(settings: LogSettings, *, terminal: bool) -> list[Processor]:
    if settings.format == "console" or (settings.format == "auto" and terminal):
        return [structlog.dev.ConsoleRenderer(colors=terminal)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
