"""``changefeed leases import``: continue from the positions of another fleet, or Spark."""

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from changefeed.cli.existing import leases_if_any
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.position_files import read_positions
from changefeed.cli.io.report import say
from changefeed.feeds.addresses import open_feed
from changefeed.fleet.phrases import counted
from changefeed.fleet.wanted_positions import refuse_wrong_positions
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.lease import Lease
from changefeed.leases.position_file import Positions
from changefeed.runtime.errors import UserError
from changefeed.stores.addresses import STORES

_THEIR_RENEWAL = 20.0  # .NET and Java renew each lease every 17 s, by default

leases = typer.Typer(help="Work on leases as a whole.", no_args_is_help=True)


@leases.callback()
def _group() -> None:
    """Work on leases as a whole."""


@leases.command("import")
@with_flags
def import_(
    source: Annotated[
        str,
        typer.Argument(
            help="Their leases: cosmos://HOST/DATABASE/CONTAINER?prefix=… (or ?processor="
            "…&feed=…); or what changefeed pipeline export has written: file:PATH, or - for "
            "standard input."
        ),
    ],
    flags: FeedFlags,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print what would happen.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Even if the other fleet seems to run.")
    ] = False,
) -> None:
    """Create leases for this feed at the positions of a Java or .NET fleet, or a pipeline.

    Leases that are there already are left as they are. A .NET fleet's leases need no
    import to be taken over under their own prefix: see docs/cosmos.md. Stop the other
    fleet first: what it still reads, both would.
    """
    with exit_on_error():
        settings = flags.settings()
        if source == "-" or source.startswith("file:"):
            wanted = read_positions(source.removeprefix("file:"))
            asyncio.run(_import_document(settings, wanted, dry_run=dry_run))
        else:
            asyncio.run(_import(settings, source, dry_run=dry_run, force=force))


async def _import_document(settings: Settings, document: Positions, *, dry_run: bool) -> None:
    """Create leases as they were written down; none, if there are others already."""
    async with open_feed(settings.feed.address, settings.open_options) as feed:
        await refuse_wrong_positions(document, feed, start=settings.feed.start)
    wanted = document.leases
    async with leases_if_any(settings) as container:
        positions = {x.range_id: x.position for x in wanted}
        for listed in await container.list():
            stored = await container.read(listed.range_id)
            if stored is not None and stored.position != positions.get(listed.range_id):
                raise UserError(
                    f"range {listed.range_id} has a lease already, at {stored.position}: "
                    f"hosts may be further on. Name a container without leases, or set "
                    f"positions with: changefeed reset"
                )
    await _create(wanted, settings, dry_run=dry_run)


async def _import(settings: Settings, source: str, *, dry_run: bool, force: bool) -> None:
    from changefeed.leases.cosmos import foreign as importing  # noqa: PLC0415 - only for those who use it

    scheme, _, place = source.partition(":")
    if STORES.name(source) != "cosmos":
        raise UserError(
            f"{source!r} is no address of Cosmos DB: cosmos://HOST/DATABASE/CONTAINER"
        )
    found = await importing.read_foreign(scheme, place, settings.cosmos.access)
    now, expiration = time.time(), settings.leases.expiration
    if not force and any(x.may_be_alive(now=now, expiration=2 * expiration) for x in found):
        watch = max(expiration, _THEIR_RENEWAL)
        say(f"watching whether that fleet lives, for {watch:g} s (--force does not)")
        await asyncio.sleep(watch)
        before = found
        found = await importing.read_foreign(scheme, place, settings.cosmos.access)
        if alive := importing.moved(before, found):
            raise UserError(
                f"the fleet runs: {', '.join(alive)} wrote within the last {watch:g} s. "
                f"Stop it first"
            )
    async with open_feed(settings.feed.address, settings.open_options) as feed:
        ranges = await feed.ranges()
    wanted = importing.imported(found, ranges)
    say(f"{counted(len(found), 'lease')} found, {len(found) - len(wanted)} of them never read")
    await _create(wanted, settings, dry_run=dry_run)


async def _create(wanted: Sequence[Lease], settings: Settings, *, dry_run: bool) -> None:
    """Create those leases that are not there yet, or print what would happen."""
    opening = leases_if_any(settings) if dry_run else open_leases(settings)
    async with opening as container:
        for lease in wanted:
            stored = await container.read(lease.range_id)
            if stored is not None:
                say(f"range {lease.range_id}: there already, at {stored.position}")
            elif dry_run:
                say(f"range {lease.range_id}: would start at {lease.position}")
            else:
                await container.create(lease)
                say(f"range {lease.range_id}: starts at {lease.position}")
