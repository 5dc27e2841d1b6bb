"""Tests run in virtual time, unless they are marked ``real_time``."""

import asyncio
from collections.abc import Callable, Mapping

import hypothesis
import pytest
import structlog

from tests.support.virtual_time import VirtualTimeLoop

# A busy machine is no reason to fail; what takes long is measured in benchmarks.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

# Only what went wrong is worth reading under a failed test.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - the hook's own signature
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}
