"""``changefeed doctor``: what is wrong with a fleet, in sentences, with what to do."""

import asyncio
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from changefeed.cli.existing import existing_fleet
from changefeed.cli.exit_codes import FAILED, exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.diagnostics import print_diagnostics
from changefeed.fleet.doctor import diagnose
from changefeed.fleet.peers import NoAnswer, Peers
from changefeed.fleet.status import FleetStatus, HostSeen
from changefeed.host.settings import Settings
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.runtime.together import together
from changefeed.runtime.version import software_version

_EVERY = 1.0
_ANSWER_WITHIN = 3.0
_READY_OR_NOT = (200, 503)
_LITTLE, _TOO_LITTLE = 0.10, 0.02
_FILES = ("eventlog", "sqlite", "jsonl")


@with_flags
def doctor(
    flags: FeedFlags,
    *,
    watch: Annotated[
        float,
        typer.Option(
            "--watch", min=2.0, max=3600.0, help="How long to watch the fleet, in seconds."
        ),
    ] = 25.0,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Watch a fleet for a while, and say what is wrong with it and what to do.

    Hosts that give no sign of life, ranges that fail, rest or do not get on; clocks, settings
    and versions that differ; processors of another kind, uneven loads, endpoints that do not
    answer, disks that fill up. It changes nothing. Ends with 1 if there is a problem.
    changefeed check tries feed and leases themselves.
    """
    with exit_on_error():
        found = asyncio.run(_found(flags.settings(), watch))
        print_diagnostics(found, json=json, exit_code=FAILED)


async def _found(settings: Settings, watch: float) -> Sequence[Diagnostic]:
    looks: list[FleetStatus] = []
    async with existing_fleet(settings) as fleet:
        until = time.monotonic() + watch
        while True:
            looks.append(await fleet.look(looks[-1] if looks else None))
            if time.monotonic() >= until:
                break
            await asyncio.sleep(_EVERY)
    found = diagnose(
        looks,
        beat=settings.leases.timing.renew_interval,
        max_skew=settings.leases.timing.clock_skew,
        software=software_version(),
    )
    found += await ask_endpoints(looks[-1].hosts)
    found += look_at_disks(settings)
    return found or [fine("fleet", "nothing is wrong, as far as can be seen from here")]


class _Readiness(msgspec.Struct):
    """What ``/readyz`` of a host says."""

    problems: list[str]


async def ask_endpoints(hosts: Sequence[HostSeen]) -> list[Diagnostic]:
    """Ask hosts whether they are ready."""
    async with Peers.opened(seconds=_ANSWER_WITHIN) as peers:
        asked = [_endpoint(peers, x) for x in hosts if x.address and x.state != "stopping"]
        return [x for found in await together(*asked) for x in found]


async def _endpoint(peers: Peers, host: HostSeen) -> list[Diagnostic]:
    """Ask a host whether it is ready. That it is out of reach may be meant."""
    about = f"host {host.name}"
    try:
        said = await peers.get(host.address, "/readyz", _Readiness, statuses=_READY_OR_NOT)
    except NoAnswer as error:
        text = f"{host.address} does not answer from here ({error})"
        return [warning(about, text, "web.bind is 127.0.0.1 unless set otherwise")]
    return [warning(about, f"it is not ready: {x}", "look at its log") for x in said.problems]


def look_at_disks(settings: Settings) -> list[Diagnostic]:
    """Look at the disks of what is kept in files here, each once."""
    found: dict[int, Diagnostic] = {}
    for name, place in _places(settings):
        there = next(x for x in (place, *place.absolute().parents) if x.exists())
        usage = shutil.disk_usage(there)
        free = usage.free / usage.total
        if free < _LITTLE:
            say = problem if free < _TOO_LITTLE else warning
            text = f"the disk of {place} is nearly full: {free:.0%} are free"
            found[there.stat().st_dev] = say(name, text, "make room; nothing is lost by then")
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
