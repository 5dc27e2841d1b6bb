"""Suites of tests for feeds and stores, ours and those of others.

A suite is a module of tests as pytest knows them, with ``parametrize`` and fixtures by name.
Here its tests are made into one, which runs each of them on an ordinary event loop of its own,
so that it needs no plugin for async tests.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from changefeed.leases.container import LeaseContainer
from changefeed.leases.stored import StoredLeases
from changefeed.testing import (
    feed_suite,
    lease_changes_suite,
    lease_race_suite,
    lease_suite,
    many_ranges_suite,
    member_suite,
    parts_suite,
    store_suite,
    succession_suite,
)
from changefeed.testing.feed_harness import FeedHarness
from changefeed.testing.store_suite import ConnectStore

_FEED_SUITES = (feed_suite, many_ranges_suite, parts_suite, succession_suite)
_LEASE_SUITES = (lease_suite, lease_changes_suite, lease_race_suite, member_suite)

Test = Callable[..., None]


def suite_of(*suites: ModuleType) -> dict[str, Callable[..., Any]]:
    """Return the tests of suites by their names, for a module that has the fixtures."""
    return {
        name: x
        for suite in suites
        for name, x in vars(suite).items()
        if name.startswith("test_")
    }


def store_contract(
    open_clients: Callable[[Path], AbstractAsyncContextManager[ConnectStore]],
) -> Test:
    """Return a test of all that a store promises, and that leases in it do:
    ``test_x = store_contract(…)``.

    ``open_clients(directory)`` makes a fresh, empty store, somewhere in an empty directory if
    it needs one, and yields ``connect``: an async function that returns one more client to the
    same records each time. Clients are closed with it. A store that lives in one object returns
    that each time.
    """

    async def run(case: Callable[..., Awaitable[None]], directory: Path) -> None:
        async with open_clients(directory) as connect:

            async def leases() -> LeaseContainer:
                return StoredLeases(await connect())

            if case.__module__ == store_suite.__name__:
                await case(connect=connect)
            elif "connect" in inspect.signature(case).parameters:
                await case(connect=leases)
            else:
                await case(leases=await leases())

    return _as_one_test((store_suite, *_LEASE_SUITES), run)


def feed_contract(
    open_feed: Callable[[Path], AbstractAsyncContextManager[FeedHarness]],
) -> Test:
    """Return a test of all that a feed promises: ``test_x = feed_contract(…)``.

    ``open_feed(directory)`` makes a fresh feed with three empty ranges and yields a
    ``FeedHarness``: the feed, what it is able to do, and how to change it.
    """

    async def run(case: Callable[..., Awaitable[None]], directory: Path) -> None:
        async with open_feed(directory) as harness:
            await case(given=harness)

    return _as_one_test(_FEED_SUITES, run)


def _as_one_test(
    suites: Collection[ModuleType],
    run: Callable[[Callable[..., Awaitable[None]], Path], Awaitable[None]],
) -> Test:
    cases = dict(_cases(suites))

    @pytest.mark.parametrize("case", cases)
    def test(case: str, tmp_path: Path) -> None:
        asyncio.run(_awaited(run(cases[case], tmp_path)))

    return test


async def _awaited(running: Awaitable[None]) -> None:
    await running


def _cases(
    suites: Collection[ModuleType],
) -> Iterator[tuple[str, Callable[..., Awaitable[None]]]]:
    """Yield each test of the suites with each of its parameters, named as pytest would."""
    for name, test in suite_of(*suites).items():
        marks = [x for x in getattr(test, "pytestmark", []) if x.name == "parametrize"]
        for chosen in product(*(_choices(x) for x in marks)):
            values = {key: value for one in chosen for key, value in one[1].items()}
            ids = "-".join(one[0] for one in chosen)
            yield f"{name}[{ids}]" if ids else name, _with(test, values)


def _choices(mark: pytest.Mark) -> Iterator[tuple[str, Mapping[str, Any]]]:
    names, rows = mark.args
    wanted = [names] if isinstance(names, str) else list(names)
    for n, row in enumerate(rows):
        values = (row,) if isinstance(names, str) else row
        yield str(n), dict(zip(wanted, values, strict=True))


def _with(
    test: Callable[..., Awaitable[None]], values: Mapping[str, Any]
) -> Callable[..., Awaitable[None]]:
    async def case(**fixtures: Any) -> None:
        await test(**fixtures, **values)

    case.__module__ = test.__module__
    case.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return case
