"""Logs: one line for each thing that happens, through the standard library's ``logging``.

A logger of ours (``get_logger``) is a logger of ``logging`` under ``changefeed``, and brings
all it needs along: nothing is configured for it. In a program that embeds a host its lines go
where that program's own lines go; the message is the event with its values, as in
``lease.acquired range=r0 epoch=3``, and ``record.msg`` is a mapping, for formatters that
want the values. Our own processes (``set_up_logs``) send all logs to standard error, those
of user code in the same form.
"""

import logging
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor

if TYPE_CHECKING:
    from changefeed.runtime.settings import LogSettings

Form = Literal["json", "console"]

_TALKATIVE = {
    "aiosqlite": logging.INFO,  # at "debug" it logs every call
    "asyncio": logging.INFO,
    "azure": logging.WARNING,  # at "info" it logs every request, in thirty lines
    "azure.identity": logging.ERROR,  # what it warns of is raised as well, and told by us
    "py4j": logging.WARNING,  # at "info" it logs every call, and that Java has gone
    "urllib3": logging.INFO,  # at "debug" each push of log lines makes two more to push
}


_STACK_LEVEL = 3  # our caller's frame, past those of structlog


class LogEvent(dict[str, Any]):
    """An event with its values; as text it is one line, even if values have line breaks."""

    def __str__(self) -> str:
        values = (f"{k}={_plain(v)}" for k, v in self.items() if k not in _NO_VALUES)
        return " ".join((str(self.get("event", "")), *values))


_NO_VALUES = ("event", "exc_info", "stack_info")
_SPECIAL = frozenset(" ='\"")


def _plain(value: object) -> str:
    """Quote what would not be read as one value."""
    if isinstance(value, str) and value.isprintable() and value and not _SPECIAL & {*value}:
        return value
    return repr(value)


def get_logger(name: str = "changefeed") -> FilteringBoundLogger:
    """Return a structured logger over ``logging.getLogger(name)``, also before any setup."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            _as_record,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        context_class=dict,
        cache_logger_on_first_use=False,
    )
    return cast("FilteringBoundLogger", wrapped)


def _as_record(
    logger: logging.Logger, method: str, event: MutableMapping[str, Any]
) -> tuple[tuple[LogEvent], Mapping[str, Any]]:
    """Make the arguments of a call of ``logging``; the formatter finds the values in it."""
    message = LogEvent(event)
    if message.get("exc_info") is True:
        message["exc_info"] = sys.exc_info()
    return (message,), {
        "exc_info": message.get("exc_info"),
        "stacklevel": _STACK_LEVEL,
        "extra": {"_logger": logger, "_name": method},
    }


def set_up_logs(settings: "LogSettings", more: Sequence[logging.Handler] = ()) -> None:
    """Send all logs to standard error, and to the handlers ``more``.

    For a process that is ours: it changes what the whole process logs, and how.
    """
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    structlog.configure(  # for user code that logs with it
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.contextvars.merge_contextvars,
                structlog.stdlib.ExtraAdder(),
            ],
            processors=[
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                _add_timestamp,
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(form_of(settings, terminal=sys.stderr.isatty())),
            ],
        )
    )
    logging.basicConfig(level=level, handlers=[lines, *more], force=True)
    logging.captureWarnings(True)
    for name, least in _TALKATIVE.items():
        logging.getLogger(name).setLevel(max(level, least))


def _add_timestamp(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    at = datetime.fromtimestamp(event["_record"].created, UTC)
    event["timestamp"] = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    return event


def form_of(settings: "LogSettings", *, terminal: bool) -> Form:
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
