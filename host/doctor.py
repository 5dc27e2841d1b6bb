"""What is wrong with a fleet, by some looks at it one after the other: plain decisions.

What can be seen in one look is in the snapshot's own problems. The others take time: whether a
host gives signs of life, whether a range gets on, and what the clocks of the hosts say. In what
living hosts differ is found by ``differences``.

Limits: a clock is compared with this machine's, which may be the one that is wrong; if all
are off by the same, it is this one. Differences below two seconds and the time
between two looks are not seen.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from changefeed.host.differences import differences
from changefeed.host.operations.phrases import counted
from changefeed.host.settings import LeaseSettings
from changefeed.host.snapshot import LeaseStatus, MemberStatus, Snapshot
from changefeed.runtime.diagnostics import Diagnostic, problem, warning

_SMALL_DIFFERENCE = 2.0
_MILD = ("paused", "unowned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """``at`` is by this machine's clock that never goes back."""

    at: float
    seen: Snapshot


def diagnose(
    looks: Sequence[Look], settings: LeaseSettings, software: str = ""
) -> list[Diagnostic]:
    """Return what is wrong, worst things of the last look first. ``looks`` are in order, and
    ``software`` is the version of this program.
    """
    last = looks[-1].seen
    living = _living(looks)
    staying = [x for x in last.members if x.name in living and not x.stopping]
    return [
        *_without_hosts(looks),
        *_seen_at_once(last),
        *_silent(looks, living, settings.renew_interval),
        *_clocks(looks, settings.max_clock_skew),
        *_standing_still(looks),
        *_foreign(last),
        *differences(staying, software),
        *_uneven(looks, living),
    ]


def _without_hosts(looks: Sequence[Look]) -> Iterator[Diagnostic]:
    """Say once that there is no host. Those that died without a word have records still, and
    leases may belong to processors that keep none: both are said by name.
    """
    records = any(look.seen.members for look in looks)
    owners = any(x.owner for x in looks[-1].seen.leases)
    if not (records or owners):
        text = "no host runs: what is appended to the feed is not read"
        yield problem("fleet", text, "start one with changefeed run, with these leases")


def _seen_at_once(seen: Snapshot) -> Iterator[Diagnostic]:
    for one in seen.problems:
        about = "fleet" if one.range is None else f"range {one.range}"
        say = warning if one.kind in _MILD else problem
        yield say(about, f"{one.kind}: {one.message}", "")


def _living(looks: Sequence[Look]) -> set[str]:
    """Return the hosts whose records have moved."""
    first, last = _by_name(looks[0].seen), _by_name(looks[-1].seen)
    return {x for x, member in last.items() if _sign(member) != _sign(first.get(x))}


def _sign(member: MemberStatus | None) -> tuple[str, int] | None:
    return None if member is None else (member.incarnation, member.heartbeats)


def _by_name(seen: Snapshot) -> dict[str, MemberStatus]:
    return {x.name: x for x in seen.members}


def _silent(looks: Sequence[Look], living: set[str], beat: float) -> Iterator[Diagnostic]:
    """Find the hosts without a sign of life, of which each should give one every ``beat`` s."""
    watched = looks[-1].at - looks[0].at
    silent = sorted(_by_name(looks[-1].seen).keys() - living)
    if silent and watched < 2 * beat:
        yield warning(
            "fleet",
            f"{watched:.0f} s are too few to see whether {', '.join(silent)} lives: hosts give "
            f"a sign of life every {beat:g} s",
            f"watch longer: --watch={ceil(2 * beat) + 1}",
        )
        return
    for name in silent:
        owned = sum(x.owner == name for x in looks[-1].seen.leases)
        have = "has" if owned == 1 else "have"
        leases = f", and {counted(owned, 'lease')} {have} its name" if owned else ""
        yield problem(
            f"host {name}",
            f"it has given no sign of life for {watched:.0f} s{leases}",
            "is its process there? Others take its leases when they expire",
        )


def _clocks(looks: Sequence[Look], most: float) -> Iterator[Diagnostic]:
    """Compare a stamp that has just been written with our own clock."""
    ages: dict[str, list[float]] = {}
    longest = max((b.at - a.at for a, b in pairwise(looks)), default=0.0)
    for before, after in pairwise(looks):
        known = _by_name(before.seen)
        for name, member in _by_name(after.seen).items():
            moved = name in known and _sign(known[name]) != _sign(member)
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
            "let both keep time by NTP; leases.max_clock_skew is what the fleet can bear",
        )


def _standing_still(looks: Sequence[Look]) -> Iterator[Diagnostic]:
    """Find ranges with changes, an owner, no failure, and one checkpoint all the time."""
    watched = looks[-1].at - looks[0].at
    first = {x.range: x for x in looks[0].seen.leases}
    known = {x.range for x in looks[-1].seen.problems}
    for lease in looks[-1].seen.leases:
        before = first.get(lease.range)
        if before is None or lease.range in known or not (lease.lag and before.lag):
            continue
        if lease.owner is not None and _place(lease) == _place(before):
            yield warning(
                f"range {lease.range}",
                f"it is {counted(lease.lag, 'change')} behind, and {lease.owner} has "
                f"checkpointed nothing for {watched:.0f} s",
                "does its observer take that long for a batch? Set observer.timeout",
            )


def _place(lease: LeaseStatus) -> tuple[str | None, str | None, int]:
    return lease.continuation, lease.owner, lease.epoch


def _foreign(seen: Snapshot) -> Iterator[Diagnostic]:
    recorded = _by_name(seen).keys()
    owners = Counter(x.owner for x in seen.leases if x.owner and x.owner not in recorded)
    for owner, count in sorted(owners.items()):
        yield warning(
            "leases",
            f"{owner} owns {counted(count, 'lease')}, and keeps no record",
            "a processor of another kind, or a host that was killed: see changefeed release",
        )


def _uneven(looks: Sequence[Look], living: set[str]) -> Iterator[Diagnostic]:
    """Find loads that were uneven all the time, while no lease was on its way."""
    loads = [_loads(x.seen, living) for x in looks]
    if all(_by_load(x) for x in looks[-1].seen.members):
        return
    moving = any(x.next_owner is not None for look in looks for x in look.seen.leases)
    if moving or not all(x and max(x.values()) - min(x.values()) > 1 for x in loads):
        return
    shares = ", ".join(f"{name} {count}" for name, count in loads[-1].items())
    yield warning(
        "fleet",
        f"leases are not shared evenly: {shares}",
        "they are, some seconds after hosts came or went: have all the same settings?",
    )


def _by_load(member: MemberStatus) -> bool:
    """Whether it shares work; then numbers are as they are."""
    return member.settings.get("leases.balance") == "load"


def _loads(seen: Snapshot, living: set[str]) -> dict[str, int]:
    owned = Counter(x.owner for x in seen.leases)
    hosts = {x.name for x in seen.members if not x.stopping}
    return {x: owned[x] for x in sorted(living & hosts)}
