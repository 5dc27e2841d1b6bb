"""Leases that are there already: to look at them, or to change them, must not make any."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches

from changefeed.feeds.feed import RangeId
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.addresses import leases_exist
from changefeed.leases.lease import Lease
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


def named(leases: Collection[Lease], names: Sequence[str]) -> list[Lease]:
    """Return the leases of these ranges. Raise ``UserError`` for one that there is not, or
    that has ended.
    """
    known = {x.range_id: x for x in leases}
    found = []
    for name in dict.fromkeys(names):
        lease = known.get(RangeId(name))
        if lease is None:
            near = get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]}?" if near else "changefeed status lists them"
            raise UserError(f"there is no lease of a range {name!r}; {advice}")
        if lease.ended:
            raise UserError(f"range {name} has ended: its successors have its keys now")
        found.append(lease)
    return found
