"""Pausing and resuming ranges, and what is printed of it."""

from collections.abc import Sequence

from changefeed.cli.existing_leases import existing_leases
from changefeed.cli.io.report import say
from changefeed.fleet import claims
from changefeed.fleet.phrases import Outcome, open_or_named_leases
from changefeed.host.settings import Settings


async def pause(settings: Settings, names: Sequence[str], reason: str) -> None:
    """Pause these ranges, or all, once their owners have finished what they have in hand."""
    async with existing_leases(settings) as container:
        said = await claims.pause_ranges(container, names, reason)
    _print(said, "there are no ranges to pause")


async def force(settings: Settings, names: Sequence[str], reason: str) -> None:
    """Pause these ranges, or all, and take them from their owners."""
    async with existing_leases(settings) as container:
        before = open_or_named_leases(await container.list(), names)
        await claims.pause(container, [x.range_id for x in before], reason)
        every = settings.leases.timing.balance_interval
        said = []
        for lease in before:
            said.append(Outcome(f"{lease.range_id}: paused"))
            if lease.owner is not None:
                said += await claims.release_range(
                    container, lease.range_id, listing_every=every
                )
    _print(said, "there are no ranges to pause")


async def resume(settings: Settings, names: Sequence[str]) -> None:
    """Resume these ranges, or all that are paused."""
    async with existing_leases(settings) as container:
        said = await claims.resume_ranges(container, names)
    _print(said, "no range was paused")


def _print(said: Sequence[Outcome], nothing: str) -> None:
    for line in said:
        say(line.text)
    if not said:
        say(nothing)
