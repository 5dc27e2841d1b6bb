"""``changefeed check``: what is wrong with feed and leases, and how to mend it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from changefeed.cli.exit_codes import USER_ERROR, exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.feeds.addresses import open_feed
from changefeed.feeds.errors import FeedError
from changefeed.host.settings import LeaseSettings, Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.addresses import OpenOptions, check_cosmos
from changefeed.leases.diagnostics import Finding, Severity, fine, problem
from changefeed.leases.errors import ContainerError

_COLOURS = {Severity.FINE: "green", Severity.WARNING: "yellow", Severity.PROBLEM: "red"}
_LONGEST = 60.0


@with_flags
def check(
    flags: FeedFlags,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try feed and leases, and say what is wrong and how to mend it.

    For Cosmos DB: endpoint, key, rights, containers, time to live, consistency, clocks.
    Ends with 0 if hosts can run, 2 if they cannot. It changes nothing but one item of its
    own, which it deletes again.
    """
    with exit_on_error():
        found = asyncio.run(_found(flags.settings()))
        if json:
            typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        else:
            Console().print(_rendered(found))
        if any(x.gravity is Severity.PROBLEM for x in found):
            raise typer.Exit(USER_ERROR)


async def _found(settings: Settings) -> Sequence[Finding]:
    found = [x async for x in _feed(settings)]
    for address in _addresses(settings.leases):
        if address.startswith("cosmos"):
            means = OpenOptions(cosmos=settings.cosmos.access)
            found += [x async for x in check_cosmos(address, means)]
    if not any(x.gravity is Severity.PROBLEM for x in found):
        found += [x async for x in _leases(settings)]
    return [*found, *_modes(settings)]


def _addresses(leases: LeaseSettings) -> Sequence[str]:
    if leases.ownership is not None and leases.checkpoints is not None:
        return (leases.ownership, leases.checkpoints)
    return (leases.container,)


async def _feed(settings: Settings) -> AsyncIterator[Finding]:
    address = settings.feed.address
    try:
        async with (
            asyncio.timeout(_LONGEST),
            open_feed(address, settings.cosmos.access) as feed,
        ):
            ranges = await feed.ranges()
    except FeedError as error:
        yield problem("feed", str(error))
    except TimeoutError:
        yield problem("feed", f"{address} does not answer", "look at the network")
    else:
        yield fine("feed", f"{address} has {len(ranges)} ranges")


async def _leases(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with asyncio.timeout(_LONGEST), open_leases(settings) as container:
            leases, members = await container.list(), await container.members()
    except ContainerError as error:
        yield problem("leases", str(error))
    except TimeoutError:
        yield problem("leases", "the container does not answer", "look at the network")
    else:
        yield fine("leases", f"{len(leases)} leases, {len(members)} hosts")


def _modes(settings: Settings) -> Sequence[Finding]:
    """Both addresses have a mode; where they differ, .NET would misread the leases."""
    feed, leases = settings.feed.address, settings.leases.container
    if not (feed.startswith("cosmos") and leases.startswith("cosmos")):
        return ()
    if ("mode=all-versions" in feed) == ("mode=all-versions" in leases):
        return ()
    return (
        problem(
            "mode",
            "the feed is read in another mode than the leases say",
            "give both addresses the same mode=…",
        ),
    )


def _rendered(found: Sequence[Finding]) -> Table:
    table = Table("", "about", "found", "what to do")
    for x in found:
        gravity = f"[{_COLOURS[x.gravity]}]{x.gravity}[/]"
        table.add_row(gravity, x.about, x.text, x.advice)
    return table
