"""``changefeed release``: taking a lease away from a host that is dead or stuck."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.existing import existing_leases
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import LeaseFlags
from changefeed.cli.io.report import say
from changefeed.fleet.claims import release_range
from changefeed.host.settings import Settings


@with_flags
def release(
    range_: Annotated[str, typer.Argument(metavar="RANGE", help="As status names it.")],
    flags: LeaseFlags,
) -> None:
    """Take the lease of a range away from its owner, so that another host can have it now.

    Hosts do this by themselves with what has expired. It is for not waiting, and for an
    owner that renews but is stuck; stop that one as well. What the owner had in hand is
    delivered again.
    """
    with exit_on_error():
        settings = flags.settings()
        asyncio.run(_release(settings, range_))


async def _release(settings: Settings, name: str) -> None:
    async with existing_leases(settings) as container:
        for line in await release_range(
            container, name, listing_every=settings.leases.timing.balance_interval
        ):
            say(line.text)
