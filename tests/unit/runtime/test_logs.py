"""What our loggers hand to ``logging``, in a program of somebody else and in one of ours."""

import json
import logging
from collections.abc import Iterator

import pytest

from changefeed.runtime.logs import LogEvent, get_logger
from tests.support.processes import python


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger, handler = logging.getLogger("changefeed"), Kept()
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(before)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", "'two words'"),
        ("a=b", "'a=b'"),
        ("", "''"),
        ("forged\nhost.stopped", r"'forged\nhost.stopped'"),
        ("it's", '"it\'s"'),
        (1.5, "1.5"),
        (["a"], "['a']"),
    ],
)
def test_a_value_reads_as_one_whatever_is_in_it(value: object, shown: str) -> None:
    assert str(LogEvent(event="x", value=value)) == f"x value={shown}"


def test_a_traceback_is_where_a_formatter_looks_for_it(kept: Kept) -> None:
    try:
        int("three")
    except ValueError:
        get_logger("changefeed.somewhere").exception("x.failed", n=1)
    (record,) = kept.records
    text = logging.Formatter("%(name)s %(message)s").format(record)
    assert text.startswith("changefeed.somewhere x.failed n=1\nTraceback ")
    assert text.endswith("with base 10: 'three'")


def test_importing_and_logging_configures_nothing_in_a_program_of_somebody_else() -> None:
    ran = python(
        "import logging, structlog\n"
        "before = logging.getLoggerClass()\n"
        "from changefeed.runtime.logs import get_logger\n"
        "get_logger().info('host.started')\n"
        "assert not structlog.is_configured()\n"
        "assert logging.getLoggerClass() is before\n"
        "assert not logging.getLogger('changefeed').handlers\n"
        "logging.basicConfig(level='INFO', format='%(levelname)s:%(name)s:%(message)s')\n"
        "get_logger().info('host.started', host='anna')\n"
    )
    assert ran.stdout == ""
    assert ran.stderr == "INFO:changefeed:host.started host=anna\n"


def test_a_process_of_ours_logs_json_of_its_own_and_of_all_others() -> None:
    ran = python(
        "import logging, structlog\n"
        "from changefeed.runtime.logs import get_logger, set_up_logs\n"
        "from changefeed.runtime.settings import LogSettings\n"
        "set_up_logs(LogSettings(format='json'))\n"
        "get_logger().bind(host='anna').info('lease.acquired', range='r0')\n"
        "logging.getLogger('mine').warning('low on %s', 'fuel', extra={'left': 2})\n"
        "logging.getLogger('azure.identity.aio').warning('in thirty lines')\n"
        "structlog.get_logger('his').info('seen', n=1)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: get_logger().exception('x.failed')\n"
    )
    ours, mine, his, failed = (json.loads(x) for x in ran.stderr.splitlines())
    assert len({x.pop("timestamp")[-1] for x in (ours, mine, his, failed)} | {"Z"}) == 1
    assert ours == {
        "event": "lease.acquired",
        "host": "anna",
        "range": "r0",
        "level": "info",
        "logger": "changefeed",
    }
    assert mine == {"event": "low on fuel", "left": 2, "level": "warning", "logger": "mine"}
    assert his == {"event": "seen", "n": 1, "level": "info", "logger": "his"}
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")
