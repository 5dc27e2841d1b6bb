"""Log lines that are pushed by OpenTelemetry: imported where the environment asks for it."""

import logging
import sys
from collections.abc import Iterable
from typing import Any

from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.resources import Resource


class PushedLogs(logging.Handler):
    """Hands log lines to OpenTelemetry: the event as the body, the rest as attributes, and an
    exception with its traceback as the attributes ``exception.*`` of OpenTelemetry.
    """

    def __init__(self, resource: Resource, exporters: Iterable[LogRecordExporter]) -> None:
        super().__init__()
        self._provider = LoggerProvider(resource, shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))

    def push_the_rest(self) -> None:
        """Push what is left, and no more from here on."""
        self._provider.shutdown()

    def emit(self, record: logging.LogRecord) -> None:
        # A line of structlog is still a mapping here; any other is text.
        values: dict[str, Any] = (
            {k: v for k, v in record.msg.items() if not k.startswith("_")}
            if isinstance(record.msg, dict)
            else {"event": record.getMessage()}
        )
        error = _exception(values.pop("exc_info", None) or record.exc_info)
        self._provider.get_logger(record.name).emit(
            timestamp=int(record.created * 1e9),
            severity_number=_severity(record.levelno),
            severity_text=record.levelname,
            body=str(values.pop("event", "")),
            attributes={k: _plain(v) for k, v in values.items() if v is not None},
            exception=error,
        )


def _exception(exc_info: object) -> BaseException | None:
    """Find it in what ``logging`` and structlog take for ``exc_info``."""
    match exc_info:
        case BaseException() as error:
            return error
        case (_, BaseException() as error, _):
            return error
        case True:  # structlog leaves looking to who writes the line
            return sys.exception()
    return None


def _severity(level: int) -> SeverityNumber:
    """OpenTelemetry counts debug 5, info 9, warning 13, error 17, fatal 21."""
    return SeverityNumber(max(1, min(level // 10, 5) * 4 + 1))


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | bool | int | float) else str(value)
