"""Leases that are there already: to look at them, or to change them, must not make any."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.addresses import leases_exist
from changefeed.leases.timeouts import BoundedContainer
from changefeed.runtime.errors import UserError


async def refuse_to_create(settings: Settings) -> None:
    """Raise ``UserError`` where opening would make the container, as SQLite's does."""
    for address in settings.leases.addresses:
        if not await leases_exist(address, settings.open_options):
            _, _, place = address.partition(":")
            raise UserError(f"there are no leases at {place} yet: no host has run with them")


@asynccontextmanager
async def existing_leases(settings: Settings) -> AsyncIterator[BoundedContainer]:
    leases = settings.leases.model_copy(update={"create_container": False})
    settings = settings.model_copy(update={"leases": leases})
    await refuse_to_create(settings)
    async with open_leases(settings) as container:
        yield BoundedContainer(container, timeout=leases.call_timeout, on_call=lambda _: None)
