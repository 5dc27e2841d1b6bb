"""Builders: a valid value of each kind, of which a test names only what its story is about.

Use them by their module: ``make.lease("r0", owner="a")``, ``make.change(3)``. A builder that a
second file needs moves here. What a story does, or how it waits, is no builder.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from changefeed.feeds.errors import FeedError
from changefeed.feeds.feed import (
    Change,
    Child,
    Feed,
    FeedRange,
    Operation,
    Page,
    Position,
    RangeId,
)
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.sources import StoreSource
from changefeed.fleet.status import FleetStatus, HostStatus, RangeStatus, Totals
from changefeed.fleet.stopping import LeasedFeed
from changefeed.host.owned_lease import OwnedLease, acquire
from changefeed.host.settings import LeaseSettings
from changefeed.leases.checkpoint import Checkpoint
from changefeed.leases.container import LeaseContainer
from changefeed.leases.fleet import FleetWatch
from changefeed.leases.lease import (
    HostName,
    Incarnation,
    KeptCheckpoint,
    Lease,
    Member,
    RangeEnd,
)
from changefeed.leases.memory import MemoryLeases
from changefeed.leases.timing import FleetRules, Timing
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from changefeed.observers.dead_letters import DeadLetter, DeadLetters, LetterError
from changefeed.runtime.clock import elapsed_time
from changefeed.testing.fleet import Fleet, Sections, fleet_settings
from changefeed.testing.observers import RecordingContext

settings = fleet_settings
"""The settings of one host of a fleet: its name, and what differs from the defaults."""


def end(*children: FeedRange, at: str = "0", **more: Any) -> RangeEnd:
    """Return the end of a range that goes on in these, all of them from one position."""
    return RangeEnd(
        children=tuple(Child(range=x, start=Position(at)) for x in children), **more
    )


CLOSED = end()
"""The end of a range that nothing goes on in."""


def closed(lease: Lease) -> Lease:
    return lease.ended_in(CLOSED)


async def end_in(
    container: LeaseContainer, name: str, *children: FeedRange, at: str = "0"
) -> None:
    """End a range as its reader does, at one position."""
    stored = await container.read(RangeId(name))
    assert stored is not None, name
    await container.replace(stored.ended_in(end(*children, at=at)))


def feed_range(
    name: str = "r0",
    low: str = "",
    high: str = "",
    *,
    parents: Iterable[str] = (),
    generation: tuple[int, int] = (0, 0),
) -> FeedRange:
    """Return a range; without bounds, the hashes of its keys are not known."""
    return FeedRange(
        id=RangeId(name),
        low=low,
        high=high,
        parents=tuple(RangeId(x) for x in parents),
        generation=generation,
    )


def lease(
    of: str | FeedRange = "r0",
    owner: str | None = None,
    *,
    at: str | None = None,
    epoch: int | None = None,
    parents: Iterable[str] = (),
    **more: Any,
) -> Lease:
    """Return a lease of a range, given whole or by its name.

    ``at`` is its checkpoint, written under ``epoch``, which is 1 for a lease that somebody owns
    and 0 for any other. ``more`` are fields of ``Lease``.
    """
    found = of if isinstance(of, FeedRange) else feed_range(of, parents=parents)
    reached = epoch if epoch is not None else int(owner is not None)
    fields: dict[str, Any] = {"checkpoint_epoch": 0 if at is None else reached, **more}
    return Lease(
        range=found,
        owner=None if owner is None else HostName(owner),
        checkpoint=None if at is None else Checkpoint.of_text(at),
        epoch=reached,
        **fields,
    )


async def leases(*kept: Lease) -> MemoryLeases:
    """Return a container in memory with these leases."""
    container = MemoryLeases()
    for one in kept:
        await container.create(one)
    return container


def rules() -> FleetRules:
    """Return what the hosts of a fleet go by: expiration 30 s."""
    return FleetRules(Timing.of(30.0), "count", elapsed_time)


async def owned(container: LeaseContainer) -> OwnedLease:
    """Acquire the only lease as host ``a``: expiration 30 s, fence margin 1 s."""
    (listed,) = await container.list()
    owned = await acquire(
        container,
        listed,
        taken=lambda x: x.taken_by(HostName("a"), Incarnation("a-1")),
        rules=rules(),
        wall=lambda: 1_700_000_000.0,
    )
    assert owned is not None
    return owned


def checkpoint(of: str = "r0", at: str = "0", *, epoch: int = 0, **more: Any) -> KeptCheckpoint:
    return KeptCheckpoint(
        range_id=RangeId(of), checkpoint=Checkpoint.of_text(at), epoch=epoch, **more
    )


def member(name: str = "a", incarnation: str | None = None, **more: Any) -> Member:
    """Return the record of a host; its first incarnation is ``NAME-1``."""
    started = Incarnation(f"{name}-1" if incarnation is None else incarnation)
    return Member(name=HostName(name), incarnation=started, **more)


def change(
    sequence: int = 1,
    *,
    key: str = "k",
    item: str | None = None,
    operation: Operation = Operation.INSERT,
    body: bytes = b'{"n":1}',
    range_id: str = "r1",
    committed_us: int | None = None,
    previous: bytes | None = None,
    unreadable: str | None = None,
) -> Change:
    """Return a change of an ``item`` (its id), committed so many microseconds into a second."""
    at = 1_700_000_000_000_000 + sequence if committed_us is None else committed_us
    return Change(
        range_id=RangeId(range_id),
        sequence=sequence,
        key=key,
        id=f"id-{sequence}" if item is None else item,
        operation=operation,
        body=body,
        committed_us=at,
        previous=previous,
        unreadable=unreadable,
    )


def page(*changes: Change, at: str | None = None) -> Page:
    """Return a page; its position is the last change's sequence, or ``at``."""
    end = at if at is not None else str(changes[-1].sequence if changes else 0)
    return Page(changes=changes, position=Position(end))


def context(of: str | FeedRange = "r1") -> RecordingContext:
    """Return the context of an observer, which remembers what it is asked for."""
    return RecordingContext(range=of if isinstance(of, FeedRange) else feed_range(of))


def letter(
    of: Change | int = 1,
    *,
    range_id: str = "r1",
    body: bytes = b'{"n":1}',
    text: str = "no",
    feed: str = "orders",
    observer: str = "",
    fleet: str = "",
) -> DeadLetter:
    """Return the dead letter of a change, given whole or by its sequence."""
    changed = of if isinstance(of, Change) else change(of, range_id=range_id, body=body)
    return DeadLetter(
        feed=feed,
        observer=observer,
        fleet=fleet,
        change=changed,
        failure=LetterError(kind="ValueError", text=text, trace="line 1\nline 2"),
        attempts=10,
        host="anna",
        epoch=7,
        failed_us=1_700_000_000_123_456,
    )


async def whole(letters: DeadLetters) -> list[DeadLetter]:
    """Return all letters as they were put, in the order of their listing."""
    found = [await letters.get(x.id) for x in await letters.list()]
    return [x for x in found if x is not None]


def memory_feed(ranges: int = 1, changes: int = 0, *, keys: int = 50) -> MemoryFeed:
    """Return a feed in memory; its changes are of ``key-0``, ``key-1``, … in turns."""
    feed = MemoryFeed(ranges)
    for n in range(changes):
        feed.append(f"key-{n % keys}", b'{"n": %d}' % n)
    return feed


def records(end: int, *, first: int = 0, keys: int = 50) -> list[Record]:
    """Return records of ``key-0``, ``key-1``, … in turns, with their number as the body."""
    return [Record(key=f"key-{n % keys}", body=b'{"n": %d}' % n) for n in range(first, end)]


async def event_log(path: Path, records: Sequence[Record] = (), *, parts: int = 4) -> str:
    """Make an event log of these records; return its address."""
    await create_log(path, parts=parts)
    await append(path, records)
    return f"eventlog:{path}"


async def append(path: Path, records: Sequence[Record]) -> None:
    """Append to an event log."""
    if records:
        async with EventLogWriter.open(path) as writer:
            await writer.send_many(records)


def fleet(sections: Sections | None = None, **more: Any) -> Fleet:
    """Return a fleet of real hosts in this process; ``more`` is for ``Fleet``."""
    return Fleet(settings=sections, **more)


def range_seen(name: str = "r0", owner: str | None = None, **known: Any) -> RangeStatus:
    """Return what is seen of a range at position 0, its lag unknown."""
    state = "unowned" if owner is None else "reading"
    unknown: dict[str, Any] = {"state": state, "epoch": 1, "position": "0"}
    return RangeStatus(range=name, owner=owner, **unknown | known)


def host_seen(name: str = "a", **known: Any) -> HostStatus:
    """Return what is seen of a host that runs and owns nothing."""
    unknown: dict[str, Any] = {"state": "running", "total": Totals()}
    return HostStatus(name=name, **unknown | known)


def fleet_seen(
    ranges: Sequence[RangeStatus] = (), *, seconds: float = 0, **known: Any
) -> FleetStatus:
    """Return a status, so many seconds after the first."""
    unknown: dict[str, Any] = {
        "at": 1_767_225_600.0 + seconds,
        "clock": seconds,
        "feed": "memory:",
        "leases": "memory:",
        "expiration": 30.0,
        "hosts": (),
    }
    return FleetStatus(ranges=ranges, **unknown | known)


def looks_at(
    looks: Sequence[tuple[Sequence[HostStatus], Sequence[RangeStatus]]], **known: Any
) -> list[FleetStatus]:
    """Return looks ten seconds apart. A host stands still while its heartbeats do."""
    moved, seen = dict[tuple[str, int], float](), []
    for n, (hosts, ranges) in enumerate(looks):
        at = 10.0 * n
        for x in hosts:
            moved.setdefault((x.name, x.heartbeats), at)
        shown = [replace(x, still=at - moved[x.name, x.heartbeats]) for x in hosts]
        seen.append(fleet_seen(ranges, seconds=at, hosts=shown, **known))
    return seen


def store_source(
    container: LeaseContainer, feed: Feed | None, no_feed: FeedError | None = None, **more: Any
) -> StoreSource:
    """Return who looks at leases and a feed in memory; ``more`` is for ``StoreSource``."""
    usual: dict[str, Any] = {
        "address": "memory:",
        "place": "memory:",
        "timing": Timing.of(30.0),
    }
    return StoreSource(container, feed, no_feed, **usual | more)


def leased(
    feed: Feed, container: LeaseContainer, settings: LeaseSettings | None = None
) -> LeasedFeed:
    """Return what an operator splits and merges ranges of."""
    known = settings or LeaseSettings()
    return LeasedFeed(
        feed=feed,
        container=container,
        longest_handoff=known.longest_handoff,
    )


def fleet_watch(expiration: float = 30.0) -> FleetWatch:
    """Return what tells the living from the dead."""
    return FleetWatch(Timing.of(expiration))
