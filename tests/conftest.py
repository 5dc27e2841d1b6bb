"""Tests run in virtual time, unless they are marked ``real_time``."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

import hypothesis
import pytest

from changefeed.testing.virtual_time import VirtualTimeLoop
from tests.support import servers

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

# A busy machine is no reason to fail; what takes long is measured in benchmarks.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Only what went wrong is worth reading under a failed test.
logging.getLogger("changefeed").setLevel(logging.WARNING)


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's own signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}


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
def _servers() -> Iterator[None]:
    """End the servers that tests have asked for."""
    yield
    servers.stop_all()
