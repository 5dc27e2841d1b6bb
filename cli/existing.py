"""Leases that are there already: to look at them, or to change them, must not make any."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.container import LeaseContainer
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timeouts import BoundedContainer
from changefeed.runtime.errors import StoreMissing


@asynccontextmanager
async def existing_leases(settings: Settings) -> AsyncIterator[BoundedContainer]:
    """Open the leases. Raise ``StoreMissing`` where there are none."""
    timeout = settings.leases.call_timeout
    async with open_leases(settings, must_exist=True) as container:
        yield BoundedContainer(container, timeout=timeout, on_call=lambda _: None)


@asynccontextmanager
async def leases_if_any(settings: Settings) -> AsyncIterator[LeaseContainer]:
    """Open the leases to plan what to write. Where the first write makes the container, show
    none; else raise ``StoreMissing``.
    """
    container: LeaseContainer = MemoryLeases()
    async with AsyncExitStack() as stack:
        try:
            container = await stack.enter_async_context(existing_leases(settings))
        except StoreMissing as missing:
            if not will_be_made(missing, settings):
                raise
        yield container


def will_be_made(missing: StoreMissing, settings: Settings) -> bool:
    """Whether a host with these settings makes the container that is not there."""
    return missing.made_by_run or settings.leases.create_container
