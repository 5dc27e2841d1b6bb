"""``changefeed check``: what is wrong with feed and leases, and how to fix it."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated

import typer

from changefeed.cli.existing import will_be_made
from changefeed.cli.exit_codes import USER_ERROR, exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.diagnostics import print_diagnostics
from changefeed.feeds.addresses import FEEDS, check_feed, open_feed
from changefeed.feeds.errors import FeedError
from changefeed.fleet.coverage import check_coverage
from changefeed.fleet.phrases import counted
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.addresses import check_leases
from changefeed.runtime.diagnostics import Diagnostic, Severity, fine, problem, warning
from changefeed.runtime.errors import StoreError, StoreMissing, UserError
from changefeed.stores.addresses import STORES

_LONGEST = 60.0


@with_flags
def check(
    flags: FeedFlags,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try feed and leases, and say what is wrong and how to fix it.

    Each backend adds what it knows; for Cosmos DB: endpoint, key, rights, containers, time
    to live, consistency, clocks. Leases must hold each key of the feed once, and stand where
    it can be read.
    Ends with 0 if hosts can run, 2 if they cannot. It makes no container that is not there:
    it says whether hosts make it. In one that is there it writes one item of its own, and
    deletes it again.
    """
    with exit_on_error():
        found = asyncio.run(_found(flags.settings()))
        print_diagnostics(found, json=json, exit_code=USER_ERROR)


async def _found(settings: Settings) -> Sequence[Diagnostic]:
    found = [*_unused_sections(settings), *[x async for x in _feed(settings)]]
    try:
        for address in settings.leases.addresses:
            found += [x async for x in _place_of_leases(settings, address)]
        if not any(x.severity is Severity.PROBLEM for x in found):
            found += [x async for x in _leases(settings)]
    except StoreMissing as missing:
        found.append(_missing(missing, settings))
    return found


def _missing(missing: StoreMissing, settings: Settings) -> Diagnostic:
    if not will_be_made(missing, settings):
        return problem("leases", str(missing))
    return warning("leases", str(missing), "if the name is right, there is nothing to do")


def _unused_sections(settings: Settings) -> Iterator[Diagnostic]:
    """Find settings of backends that neither feed, leases nor dead letters are kept in."""
    stores = *settings.leases.addresses, settings.observer.dead_letters
    names = {STORES.name(x) for x in stores}
    names.add(FEEDS.name(settings.feed.address))
    for name in sorted(settings.backends.sections.keys() - names):
        yield warning(
            "settings",
            f"backends.{name} is set, and nothing is kept in such a backend",
            "look at its spelling, and at the addresses",
        )


async def _feed(settings: Settings) -> AsyncIterator[Diagnostic]:
    address, options = settings.feed.address, settings.open_options
    try:
        async with asyncio.timeout(_LONGEST), open_feed(address, options) as feed:
            ranges = await feed.ranges()
            found = [x async for x in check_feed(address, options)]
    except FeedError as error:
        yield _failed("feed", error)
    except TimeoutError:
        yield problem("feed", f"{address} does not answer", "look at the network")
    else:
        yield fine("feed", f"{address} has {counted(len(ranges), 'range')}")
        for one in found:
            yield one


async def _place_of_leases(settings: Settings, address: str) -> AsyncIterator[Diagnostic]:
    options, feed = settings.open_options, settings.feed.address
    found: list[Diagnostic] = []
    try:
        async with asyncio.timeout(_LONGEST):
            async for one in check_leases(address, options, feed=feed):
                found.append(one)  # noqa: PERF401 - what was found before a failure counts
    except TimeoutError:
        found.append(problem("leases", f"{address} does not answer", "look at the network"))
    for one in found:
        yield one


async def _leases(settings: Settings) -> AsyncIterator[Diagnostic]:
    try:
        async with (
            asyncio.timeout(_LONGEST),
            open_leases(settings, must_exist=True) as container,
            open_feed(settings.feed.address, settings.open_options) as feed,
        ):
            leases, members = await container.list(), await container.members()
            found = check_coverage(feed, container, start=settings.feed.start)
            wrong = [x async for x in found]
    except StoreMissing:
        raise
    except (StoreError, FeedError) as error:
        yield _failed("leases", error)
    except TimeoutError:
        yield problem("leases", "the container does not answer", "look at the network")
    else:
        yield fine(
            "leases", f"{counted(len(leases), 'lease')}, {counted(len(members), 'host')}"
        )
        for one in wrong:
            yield one


def _failed(about: str, error: Exception) -> Diagnostic:
    """The text of what a person has to change is the advice; that of a silence is none."""
    advice = "" if isinstance(error, UserError) else "look at the network and at the address"
    return problem(about, str(error), advice)
