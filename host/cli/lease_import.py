"""``changefeed leases import``: going on where a fleet of another kind stands."""

import asyncio
import time
from typing import Annotated

import typer

from feeds.opening import open_feed
from host.assembly import open_leases
from host.settings import Settings

from .choices import Choices, Config, Feed, Leases, Set
from .mistakes import Mistake, mistakes_told

leases = typer.Typer(help="Work on leases as a whole.", no_args_is_help=True)


@leases.callback()
def _group() -> None:
    """Work on leases as a whole."""


@leases.command("import")
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="Their leases: cosmos://HOST/DATABASE/CONTAINER?prefix=… (or ?processor="
            "…&feed=…)."
        ),
    ],
    *,
    config: Config = None,
    feed: Feed = None,
    leases: Leases = None,
    set_: Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the other fleet seems to run.")
    ] = False,
) -> None:
    """Create leases for this feed where those of a Java or .NET fleet stand.

    Leases that are there already are left as they are. A .NET fleet's leases need no
    import to be taken over under their own prefix: see docs/cosmos.md. Stop the other
    fleet first: what it still reads, both would.
    """
    with mistakes_told():
        choices = Choices(config=config, feed=feed, leases=leases, sets=set_ or ())
        asyncio.run(_import(choices.settings(), source, dry_run=dry_run, force=force))


async def _import(settings: Settings, source: str, *, dry_run: bool, force: bool) -> None:
    from leases.cosmos import importing  # noqa: PLC0415 - only for those who use it

    scheme, colon, place = source.partition(":")
    if not colon or scheme not in ("cosmos", "cosmos+http"):
        raise Mistake(
            f"{source!r} is no address of Cosmos DB: cosmos://HOST/DATABASE/CONTAINER"
        )
    access = settings.cosmos.access
    found = await importing.read_foreign(scheme, place, access)
    now, expiration = time.time(), settings.leases.expiration
    alive = sorted(
        {str(x.owner) for x in found if x.may_be_alive(now=now, expiration=2 * expiration)}
    )
    if alive and not force:
        raise Mistake(
            f"the fleet seems to run: {', '.join(alive)} wrote within the last "
            f"{2 * expiration:g} s. Stop it first; or wait, if it has just stopped"
        )
    async with open_feed(settings.feed.address, access) as feed:
        ranges = await feed.ranges()
    wanted = importing.imported(found, ranges)
    _say(f"{len(found)} leases found, {len(found) - len(wanted)} of them never read")
    async with open_leases(settings) as container:
        for lease in wanted:
            stored = await container.read(lease.range_id)
            if stored is not None:
                _say(f"range {lease.range_id}: there already, at {stored.continuation}")
            elif dry_run:
                _say(f"range {lease.range_id}: would start at {lease.continuation}")
            else:
                await container.create(lease)
                _say(f"range {lease.range_id}: starts at {lease.continuation}")


def _say(text: str) -> None:
    typer.echo(text)
