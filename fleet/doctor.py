"""What is wrong with a fleet, by some looks at it one after the other: plain decisions.

What can be seen in one look are states and problems of the last one. The others take time:
whether a host gives signs of life (as its ``still`` says), whether a range gets on, and what
the clocks of the hosts say. Which hosts are of an older version is found by ``older_versions``.

Limits: a clock is compared with this machine's, which may be the one that is wrong; if all
are off by the same, it is this one. Differences below two seconds and the time
between two looks are not seen.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import ceil

from changefeed.fleet.status import BAD, FleetStatus, HostStatus, RangeStatus
from changefeed.fleet.versions import older_versions
from changefeed.runtime.diagnostics import Diagnostic, problem, warning
from changefeed.runtime.quantities import counted

_SMALL_DIFFERENCE = 2.0
_MILD = ("paused", "unowned")


def diagnose(
    looks: Sequence[FleetStatus], *, beat: float, max_skew: float, software: str = ""
) -> list[Diagnostic]:
    """Return what is wrong, worst things of the last look first. ``looks`` are in order.

    Hosts give a sign of life every ``beat`` seconds, and their clocks may differ by
    ``max_skew`` seconds. ``software`` is the version of this program.
    """
    last = looks[-1]
    living = _living(looks)
    staying = [x for x in last.hosts if x.name in living and x.state != "stopping"]
    return [
        *_without_hosts(looks),
        *_seen_at_once(last),
        *_silent(looks, living, beat),
        *_clocks(looks, max_skew),
        *_standing_still(looks),
        *_foreign(last),
        *older_versions(staying, software),
        *_uneven(looks, living),
    ]


def _without_hosts(looks: Sequence[FleetStatus]) -> Iterator[Diagnostic]:
    """Say once that there is no host. Those that died without a word have records still, and
    leases may belong to processors that keep none: both are said by name.
    """
    records = any(_by_name(look) for look in looks)
    owners = any(x.owner for x in looks[-1].ranges)
    if not (records or owners):
        text = "no host runs: what is appended to the feed is not read"
        yield problem("fleet", text, "start one with changefeed run, with these leases")


def _seen_at_once(seen: FleetStatus) -> Iterator[Diagnostic]:
    for one in seen.problems:
        about = "fleet" if one.range is None else f"range {one.range}"
        yield problem(about, f"{one.kind}: {one.message}", "")
    for x in seen.ranges:
        if x.state in BAD:
            say = warning if x.state in _MILD else problem
            yield say(f"range {x.range}", f"{x.state}: {x.note}", "")


def _watched(looks: Sequence[FleetStatus]) -> float:
    return looks[-1].clock - looks[0].clock


def _living(looks: Sequence[FleetStatus]) -> set[str]:
    """Return the hosts whose records have moved between the first look and the last."""
    watched = _watched(looks)
    return {name for name, x in _by_name(looks[-1]).items() if x.still < watched}


def _by_name(seen: FleetStatus) -> dict[str, HostStatus]:
    """Return the hosts that keep a record."""
    return {x.name: x for x in seen.hosts if x.state != "foreign"}


def _silent(
    looks: Sequence[FleetStatus], living: set[str], beat: float
) -> Iterator[Diagnostic]:
    """Find the hosts without a sign of life; each should give one every ``beat`` seconds."""
    watched = _watched(looks)
    silent = sorted(_by_name(looks[-1]).keys() - living)
    if silent and watched < 2 * beat:
        yield warning(
            "fleet",
            f"{', '.join(silent)} gave no sign of life in {watched:.0f} s, and may live: hosts "
            f"give one every {beat:g} s",
            f"watch longer: --watch={ceil(2 * beat) + 1}",
        )
        return
    for name in silent:
        owned = sum(x.owner == name for x in looks[-1].ranges)
        have = "has" if owned == 1 else "have"
        leases = f"{counted(owned, 'lease')} {have} its name"
        yield problem(
            f"host {name}",
            f"it has given no sign of life for {watched:.0f} s, and {leases}",
            "is its process there? Others take its leases when they expire",
        )


def _clocks(looks: Sequence[FleetStatus], most: float) -> Iterator[Diagnostic]:
    """Compare a stamp that has just been written with our own clock."""
    ages: dict[str, list[float]] = {}
    longest = max((b.clock - a.clock for a, b in pairwise(looks)), default=0.0)
    for before, after in pairwise(looks):
        known = _by_name(before)
        for name, member in _by_name(after).items():
            moved = name in known and not member.still
            if moved and member.stamp_age is not None:
                ages.setdefault(name, []).append(member.stamp_age)
    for name, found in sorted(ages.items()):
        ahead, behind = -min(found), min(found) - longest
        if max(ahead, behind) <= _SMALL_DIFFERENCE:
            continue
        word, by = ("ahead of", ahead) if ahead > behind else ("behind", behind)
        say = problem if by > most else warning
        yield say(
            f"host {name}",
            f"its clock is {by:.0f} s {word} this machine's",
            f"let both keep time by NTP; a fleet bears a difference of {most:g} s",
        )


def _standing_still(looks: Sequence[FleetStatus]) -> Iterator[Diagnostic]:
    """Find ranges with changes, an owner, no failure, and one checkpoint all the time."""
    watched = _watched(looks)
    first = {x.range: x for x in looks[0].ranges}
    for lease in looks[-1].ranges:
        before = first.get(lease.range)
        if before is None or lease.state in BAD or not (lease.lag and before.lag):
            continue
        if lease.owner is not None and _place(lease) == _place(before):
            yield warning(
                f"range {lease.range}",
                f"it is {counted(lease.lag, 'change')} behind, and {lease.owner} has "
                f"checkpointed nothing for {watched:.0f} s",
                "does its observer take that long for a batch? Set observer.timeout",
            )


def _place(lease: RangeStatus) -> tuple[str | None, str | None, int]:
    return lease.position, lease.owner, lease.epoch


def _foreign(seen: FleetStatus) -> Iterator[Diagnostic]:
    for host in seen.hosts:
        if host.state != "foreign":
            continue
        yield warning(
            "leases",
            f"{host.name} owns {counted(host.total.ranges, 'lease')}, and keeps no record",
            "a processor of another kind, or a host that was killed; to take its leases: "
            "changefeed pause --force",
        )


def _uneven(looks: Sequence[FleetStatus], living: set[str]) -> Iterator[Diagnostic]:
    """Find loads that were uneven all the time, while no lease was on its way."""
    loads = [_loads(x, living) for x in looks]
    if looks[-1].balance in ("load", "split"):
        return  # they share work, and numbers are as they are
    moving = any(x.next_owner is not None for look in looks for x in look.ranges)
    if moving or not all(x and max(x.values()) - min(x.values()) > 1 for x in loads):
        return
    shares = ", ".join(f"{name} {count}" for name, count in loads[-1].items())
    yield warning(
        "fleet",
        f"leases are not shared evenly: {shares}",
        "they are, some seconds after hosts came or went: have all the same settings?",
    )


def _loads(seen: FleetStatus, living: set[str]) -> dict[str, int]:
    owned = Counter(x.owner for x in seen.ranges)
    hosts = {x.name for x in seen.hosts if x.state != "stopping"}
    return {x: owned[x] for x in sorted(living & hosts)}
