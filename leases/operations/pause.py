"""Pausing and resuming ranges, from outside of any host.

A paused lease keeps its checkpoint. Its owner notices with its next renewal, or its next
listing, finishes what it has in hand and releases it; no host takes it until it is resumed.
What a command has paused for a moment is its own: to resume all leaves that out, and each run
of a command has a reason of its own, so that two of them never take a range for theirs.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from changefeed.feeds.feed import RangeId
from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.leases.operations.update import update_lease

SPLITTING: Final = "being split (changefeed split)"
MERGING: Final = "being merged (changefeed merge)"


@dataclass(frozen=True, slots=True)
class Claim:
    """One run of a command that pauses ranges while it works."""

    command: str
    run: str = field(default_factory=lambda: uuid4().hex[:8])

    @property
    def reason(self) -> str:
        """Why its ranges are paused: no other run says the same."""
        return f"{self.command} {self.run}"


def is_paused_by(command: str, lease: Lease) -> bool:
    """Whether some run of the command has paused it, which may have died since."""
    return lease.paused is not None and lease.paused.startswith(command)


async def pause(
    container: LeaseContainer, range_ids: Collection[RangeId] | None, reason: str
) -> list[RangeId]:
    """Pause these ranges, or all; return those that were not paused, nor ended, before.

    Raise ``LeaseConflict`` if others kept writing to a lease, and what containers raise;
    what was paused by then stays paused.
    """
    return await _change_all(
        container,
        range_ids,
        lambda lease: None if lease.paused is not None else lease.paused_because(reason),
    )


async def resume(
    container: LeaseContainer, range_ids: Collection[RangeId] | None
) -> list[RangeId]:
    """Resume these ranges, or all; return those that were paused. Otherwise as ``pause``.

    All are those that no command has paused while it splits or merges them.
    """
    commands = (SPLITTING, MERGING) if range_ids is None else ()

    def resumed(lease: Lease) -> Lease | None:
        left = lease.paused is None or any(is_paused_by(x, lease) for x in commands)
        return None if left else lease.paused_because(None)

    return await _change_all(container, range_ids, resumed)


async def _change_all(
    container: LeaseContainer,
    range_ids: Collection[RangeId] | None,
    change: Callable[[Lease], Lease | None],
) -> list[RangeId]:
    listed = sorted(x.range_id for x in await container.list() if not x.ended)
    wanted = [x for x in listed if range_ids is None or x in range_ids]
    return [x for x in wanted if await update_lease(container, x, change) is not None]
