"""``changefeed release``: taking a lease away from a host that is dead or stuck."""

import asyncio
from typing import Annotated

import typer

from changefeed.cli.existing import existing_leases, named
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import LeaseFlags
from changefeed.host.settings import Settings
from changefeed.leases.errors import LeaseGone
from changefeed.leases.operations.release import release as release_lease
from changefeed.runtime.errors import UserError


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
        (lease,) = named(await container.list(), [name])
        try:
            before = await release_lease(container, lease.range_id)
        except LeaseGone as error:
            raise UserError(str(error)) from error
    if before is None:
        typer.echo(f"{name}: has no owner; there is nothing to release")
        return
    typer.echo(
        f"{name}: taken from {before.owner}; its epoch {before.epoch} is over, and nothing "
        f"that {before.owner} still writes under it counts.\n"
        f"The next owner continues from {before.continuation}: what was delivered since then "
        f"is delivered again.\n"
        f"If {before.owner} is alive, it learns of this within "
        f"{settings.leases.renew_interval:g} s (its renew_interval), and its observer may be "
        f"called until then. If it is stuck, stop it."
    )
