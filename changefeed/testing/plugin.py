"""What pytest gets: the fixture ``changefeed_fleet``.

A test that is ``async def`` and asks for the fixture is run here, in virtual time, whatever
else runs your async tests::

    async def test_a_crash_repeats_one_batch_at_most(changefeed_fleet):
        changefeed_fleet.start("anna")
        ...

The marker ``changefeed_fleet`` passes arguments to the ``Fleet``:
``@pytest.mark.changefeed_fleet(ranges=8, observer=MyObserver)``. Nothing else of your tests is
touched, and nothing is imported until a test asks for the fixture.

Limits: other async fixtures of such a test run on the loop of the plugin that they belong to.
"""

import functools
import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from changefeed.testing.fleet import Fleet

FIXTURE = "changefeed_fleet"

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


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{FIXTURE}(**arguments): arguments of changefeed.testing.Fleet"
    )


@pytest.fixture
def changefeed_fleet(request: pytest.FixtureRequest) -> "Fleet":
    """A ``changefeed.testing.Fleet`` in virtual time, killed at the end of the test."""
    from changefeed.testing.fleet import Fleet  # noqa: PLC0415 - only for those who use it

    marker = request.node.get_closest_marker(FIXTURE)
    return Fleet(*marker.args, **marker.kwargs) if marker else Fleet()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_pycollect_makeitem(
    collector: Any, name: str, obj: object
) -> Generator[None, Any, Any]:
    """Make plain tests of async ones before another plugin takes them for its own."""
    del collector, name, obj
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Function) and FIXTURE in item.fixturenames:
            story = item.obj
            if inspect.iscoroutinefunction(story):
                item.obj = _in_virtual_time(story)
    return made


def _in_virtual_time(story: Any) -> Any:
    @functools.wraps(story)
    def run(*arguments: Any, **fixtures: Any) -> None:
        from changefeed.testing.virtual_time import run_in_virtual_time  # noqa: PLC0415

        async def with_fleet() -> None:
            async with fixtures[FIXTURE]:
                await story(*arguments, **fixtures)

        run_in_virtual_time(with_fleet())

    return run
