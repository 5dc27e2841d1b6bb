"""Tests run in virtual time, but for some folders, and those that are marked ``real_time``."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

from changefeed.testing.virtual_time import VirtualTimeLoop
from tests.nightly import is_nightly
from tests.support import servers
from tests.support.summary import pytest_terminal_summary as pytest_terminal_summary  # noqa: PLC0414 - a hook

pytest.register_assert_rewrite(
    "changefeed.testing.feed_harness",
    "changefeed.testing.feed_suite",
    "changefeed.testing.lease_changes_suite",
    "changefeed.testing.lease_race_suite",
    "changefeed.testing.lease_suite",
    "changefeed.testing.many_ranges_suite",
    "changefeed.testing.member_suite",
    "changefeed.testing.parts_suite",
    "changefeed.testing.succession_suite",
)

_TESTS = Path(__file__).parent
_REAL_TIME = tuple(_TESTS / x for x in ("acceptance", "contract", "integration", "strangers"))
"""Their tests are of real files, processes and sockets."""

# A busy machine is no reason to fail; what takes long is measured in benchmarks.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Only what went wrong is worth reading under a failed test.
logging.getLogger("changefeed").setLevel(logging.WARNING)


@pytest.fixture
def all_in_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let compaction here make segments of partitions however small."""
    monkeypatch.setattr("changefeed.log.maintenance.run_maker.LARGE", 1)


@pytest.fixture
def steady_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let retries begin after one second, without chance."""
    monkeypatch.setattr("changefeed.observers.range_observers.FIRST_DELAY", 1.0)
    monkeypatch.setattr("changefeed.runtime.delays.JITTER", 0.0)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's own signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    of_folder = any(map(item.path.is_relative_to, _REAL_TIME))
    other = "virtual_time" if of_folder else "real_time"
    if of_folder != bool(item.get_closest_marker(other)):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_nightly(item.nodeid):
            item.add_marker("nightly")
        if isinstance(item, pytest.Function) and "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))  # one session for all
            item.add_marker(pytest.mark.filterwarnings("default"))  # Spark's are not ours


_pytest_failed = list[str]()


def pytest_internalerror(excrepr: object) -> None:
    _pytest_failed.append(str(excrepr))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where pytest itself failed in a process of xdist, which would end the run with 0."""
    if _pytest_failed:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(autouse=True)
def _no_handlers_left_behind() -> Iterator[None]:
    """Take away the handlers of commands that ran inside a test: their stream is closed."""
    root = logging.getLogger()
    before, level = [*root.handlers], root.level
    yield
    for handler in [x for x in root.handlers if x not in before]:
        root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _processes_of_tests_are_started_with_the_default_signals() -> Iterator[None]:
    """Undo what ``nohup`` and ``&`` do to all that tests start: signals are not ignored there.

    Nor do they end the run: it hears hang-ups, and does nothing.
    """
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: lambda *_: None}
    ignored = [x for x in heard if signal.getsignal(x) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, heard[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    """End the servers that tests have asked for."""
    yield
    servers.stop_all()
