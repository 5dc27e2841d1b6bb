"""What is wrong with feed, leases and fleet, in sentences."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import msgspec

from changefeed import __version__
from changefeed.cli.existing_leases import existing_fleet, will_be_made
from changefeed.cli.io.diagnostics import print_diagnostics
from changefeed.feeds.addresses import FEEDS, check_feed, open_feed
from changefeed.feeds.errors import FeedError
from changefeed.fleet.coverage import check_coverage
from changefeed.fleet.doctor import diagnose
from changefeed.fleet.peers import Peers
from changefeed.fleet.status import FleetStatus, HostStatus
from changefeed.host.settings import Settings
from changefeed.host.wiring import open_leases
from changefeed.leases.addresses import check_leases
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.diagnostics import (
    Diagnostic,
    Severity,
    failed,
    fine,
    problem,
    warning,
)
from changefeed.runtime.errors import Failure, StoreError, StoreMissing
from changefeed.runtime.exit_codes import FAILED, USER_ERROR
from changefeed.runtime.quantities import counted
from changefeed.stores.addresses import STORES

_EVERY = 1.0
_ANSWER_WITHIN = 3.0
_MAX_SECONDS = 60.0
_READY_OR_NOT = (200, 503)
_LITTLE, _TOO_LITTLE = 0.10, 0.02
_FILES = ("eventlog", "sqlite", "jsonl")


def doctor(settings: Settings, watch: float, *, json: bool) -> None:
    """Print what is found. Raise ``typer.Exit`` with a code if there is a problem."""
    tried, seen = asyncio.run(_found(settings, watch))
    code = USER_ERROR if _is_wrong(tried) else FAILED
    print_diagnostics([*tried, *seen], json=json, exit_code=code)


def _is_wrong(found: Sequence[Diagnostic]) -> bool:
    return any(x.severity is Severity.PROBLEM for x in found)


async def _found(
    settings: Settings, watch: float
) -> tuple[Sequence[Diagnostic], Sequence[Diagnostic]]:
    """Return what came of trying, and what was seen of the fleet."""
    found = [*_unused_sections(settings), *[x async for x in _feed(settings)]]
    leases: list[Diagnostic] = []
    disks = look_at_disks(settings)
    try:
        for address in settings.leases.addresses:
            leases += [x async for x in _place_of_leases(settings, address)]
        if not _is_wrong([*found, *leases]):
            leases += [x async for x in _leases(settings)]
        can_be_seen = watch > 0 and not _is_wrong(leases)
        seen = await _watched(settings, watch) if can_be_seen else []
    except StoreMissing as missing:
        return [*found, *leases, _missing(missing, settings)], disks
    return [*found, *leases], [*seen, *disks]


async def _watched(settings: Settings, seconds: float) -> Sequence[Diagnostic]:
    looks: list[FleetStatus] = []
    async with existing_fleet(settings) as fleet:
        until = time.monotonic() + seconds
        while True:
            looks.append(await fleet.look(looks[-1] if looks else None))
            if time.monotonic() >= until:
                break
            await asyncio.sleep(_EVERY)
    found = diagnose(
        looks,
        beat=settings.leases.timing.renew_interval,
        max_skew=settings.leases.timing.clock_skew,
        software=__version__,
    )
    found += await ask_endpoints(looks[-1].hosts)
    return found or [fine("fleet", "nothing is wrong, as far as can be seen from here")]


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
        async with asyncio.timeout(_MAX_SECONDS), open_feed(address, options) as feed:
            ranges = await feed.ranges()
            found = [x async for x in check_feed(address, options)]
    except FeedError as error:
        yield failed("feed", error)
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
        async with asyncio.timeout(_MAX_SECONDS):
            async for one in check_leases(address, options, feed=feed):
                found.append(one)  # noqa: PERF401 - what was found before a failure counts
    except TimeoutError:
        found.append(problem("leases", f"{address} does not answer", "look at the network"))
    for one in found:
        yield one


async def _leases(settings: Settings) -> AsyncIterator[Diagnostic]:
    try:
        async with (
            asyncio.timeout(_MAX_SECONDS),
            open_leases(settings, must_exist=True) as container,
            open_feed(settings.feed.address, settings.open_options) as feed,
        ):
            leases, members = await container.list(), await container.members()
            found = check_coverage(feed, container, start=settings.feed.start)
            wrong = [x async for x in found]
    except StoreMissing:
        raise
    except (StoreError, FeedError) as error:
        yield failed("leases", error)
    except TimeoutError:
        yield problem("leases", "the container does not answer", "look at the network")
    else:
        yield fine(
            "leases", f"{counted(len(leases), 'lease')}, {counted(len(members), 'host')}"
        )
        for one in wrong:
            yield one


class _Readiness(msgspec.Struct):
    """What ``/readyz`` of a host says."""

    problems: list[str]


async def ask_endpoints(hosts: Sequence[HostStatus]) -> list[Diagnostic]:
    """Ask hosts whether they are ready."""
    async with Peers.opened(seconds=_ANSWER_WITHIN) as peers:
        asked = [_endpoint(peers, x) for x in hosts if x.address and x.state != "stopping"]
        return [x for found in await gather_or_cancel(*asked) for x in found]


async def _endpoint(peers: Peers, host: HostStatus) -> list[Diagnostic]:
    """Ask a host whether it is ready. That it is out of reach may be meant."""
    about = f"host {host.name}"
    try:
        said = await peers.get(host.address, "/readyz", _Readiness, statuses=_READY_OR_NOT)
    except Failure as error:
        text = f"{host.address} does not answer from here ({error})"
        return [warning(about, text, "web.bind is 127.0.0.1 unless set otherwise")]
    return [warning(about, f"it is not ready: {x}", "look at its log") for x in said.problems]


def look_at_disks(settings: Settings) -> list[Diagnostic]:
    """Look at the disks of what is kept in files here, each once."""
    found: dict[int, Diagnostic] = {}
    for name, place in _places(settings):
        there = next(x for x in (place, *place.absolute().parents) if x.exists())
        usage = shutil.disk_usage(there)
        if not usage.total:  # of /proc and the like
            continue
        free = usage.free / usage.total
        if free < _LITTLE:
            say = problem if free < _TOO_LITTLE else warning
            text = f"the disk of {place} is nearly full: {free:.0%} are free"
            found[there.stat().st_dev] = say(
                name, text, "free disk space; no data has been lost yet"
            )
    return list(found.values())


def _places(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, address in (
        ("feed", settings.feed.address),
        *(("leases", x) for x in settings.leases.addresses),
        ("dead letters", settings.observer.dead_letters),
    ):
        scheme, _, place = address.partition(":")
        if scheme in _FILES and place:
            yield name, Path(place)
