"""What is wrong with a fleet, by some looks at it."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from changefeed.fleet.doctor import diagnose
from changefeed.fleet.status import HostStatus, RangeStatus, Totals
from changefeed.runtime.diagnostics import Severity
from tests.support import make

Seen = tuple[Sequence[HostStatus], Sequence[RangeStatus]]


def member(name: str, beats: int, *, age: float = 0.1, **known: Any) -> HostStatus:
    return make.host_seen(name, heartbeats=beats, stamp_age=age, **known)


def lease(name: str, owner: str | None = "a", **known: Any) -> RangeStatus:
    return make.range_seen(name, owner, **{"lag": 0, **known})


def found(looks: Sequence[Seen], software: str = "", **more: Any) -> list[str]:
    """Return what is said of these looks, which are ten seconds apart."""
    every = [([*hosts, *others(hosts, ranges)], ranges) for hosts, ranges in looks]
    seen = make.looks_at(every, **more)
    marks = {Severity.PROBLEM: "!", Severity.WARNING: "?"}
    return [
        f"{marks[x.severity]} {x.about}: {x.text}"
        for x in diagnose(seen, beat=10.0, max_skew=300.0, software=software)
    ]


def others(hosts: Sequence[HostStatus], ranges: Sequence[RangeStatus]) -> list[HostStatus]:
    """Return the owners that keep no record."""
    known = {x.name for x in hosts}
    owned = Counter(x.owner for x in ranges if x.owner and x.owner not in known)
    return [
        make.host_seen(x, state="foreign", total=Totals(ranges=count))
        for x, count in owned.items()
    ]


def living(*members: HostStatus, leases: Sequence[RangeStatus] = ()) -> list[Seen]:
    """Return two looks between which all of them have given a sign of life."""
    moved = [replace(x, heartbeats=x.heartbeats + 1) for x in members]
    return [(members, leases), (moved, leases)]


def looks(leases: Sequence[RangeStatus], *names: str, times: int) -> list[Seen]:
    """Return looks at living hosts whose leases stay as they are."""
    return [([member(x, n) for x in names], leases) for n in range(times)]


WRONG_CLOCKS = [
    (
        [
            member("a", n, age=-400.0 + n % 2),
            member("b", n, age=60.0 + n % 2),
            member("c", n, age=4.0),
        ],
        (),
    )
    for n in range(4)
]
FOUR = [lease(f"r{n}") for n in range(4)]
UNEVEN = looks(FOUR, "a", "b", times=3)
MOVING = [UNEVEN[0], (UNEVEN[1][0], [*FOUR[1:], lease("r0", next_owner="b")]), UNEVEN[2]]
BEHIND = looks([lease("r0", position="4", lag=9)], "a", times=4)
OTHERS = [lease("r0", "net"), lease("r1", "net"), lease("r2")]
OF_B = [lease("r0", "b"), lease("r1", "b")]
ONE_OF_B = [([member("a", n), member("b", 7)], OF_B[:1]) for n in (1, 2, 3)]
SILENT = [([member("a", n), member("b", 7)], OF_B) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        (SILENT, {"! host b": ("20 s", "2 leases have")}),
        (ONE_OF_B, {"! host b": ("20 s", "1 lease has")}),
        ([([member("a", 1)], ())] * 2, {"? fleet": ("a", "10 s")}),
        (
            [((), [lease("r0", None, lag=9)])] * 3,
            {"! fleet": ("no host runs",), "? range r0": ("unowned",)},
        ),
        ([((), ())] * 2, {"! fleet": ("no host runs",)}),
        (
            [([member("a", 1)], [lease("r0", None)])] * 3,
            {"! host a": ("20 s", "0 leases have"), "? range r0": ("unowned",)},
        ),
        ([((), [lease("r0", "net")])] * 2, {"? leases": ("1", "net")}),
        (looks(OTHERS, "a", times=2), {"? leases": ("2", "net")}),
        (WRONG_CLOCKS, {"! host a": ("400 s ahead",), "? host b": ("50 s behind",)}),
        ([([member("a", 1, age=500.0 + n)], ()) for n in range(3)], {"! host a": ("20 s",)}),
        (BEHIND, {"? range r0": ("9 changes", "a", "30 s")}),
        (UNEVEN, {"? fleet": ("a 4, b 0",)}),
    ],
    ids=[
        "a host without a sign of life",
        "a host without a sign of life, and one lease",
        "too short a look",
        "leases and no host",
        "nothing at all",
        "a host that was killed and has no leases",
        "only an owner of another kind",
        "an owner of another kind",
        "wrong clocks",
        "an old stamp of a silent host is no wrong clock",
        "a range with changes and no checkpoint",
        "uneven loads",
    ],
)
def test_what_is_wrong_is_said_of_whom_it_is_about(
    looks: Sequence[Seen], said: dict[str, tuple[str, ...]]
) -> None:
    texts = dict(x.split(": ", 1) for x in found(looks))
    assert texts.keys() == said.keys()
    assert all(fact in texts[about] for about, facts in said.items() for fact in facts)


GETS_ON = [
    ([member("a", 1), member("b", 7)], [lease("r0", lag=9), lease("r1", "b")]),
    ([member("a", 2), member("b", 8)], [lease("r0", position="4", lag=9)]),
]


@pytest.mark.parametrize(
    "looks",
    [
        GETS_ON,
        MOVING,
    ],
    ids=[
        "it gets on",
        "leases move",
    ],
)
def test_nothing_is_wrong(looks: Sequence[Seen]) -> None:
    assert found(looks) == []


def test_numbers_may_differ_where_hosts_balance_by_load() -> None:
    assert len(found(looks(FOUR, "a", "b", times=3))) == 1
    assert found(looks(FOUR, "a", "b", times=3), balance="load") == []


@pytest.mark.parametrize(
    ("hosts", "command", "said"),
    [
        (["0.10.0", "0.9.2", "0.9.2"], "0.9", ["? hosts b, c: version 0.9.2"]),
        (["0.10.0", "0.10.0rc1"], "0.9", ["? host b: version 0.10.0rc1"]),
        (["0.1.0", "0.1.0"], "0.1.0", []),
        (["0.1.0", "0.1.0"], "0.2.0", ["? hosts a, b: version 0.1.0"]),
        (["0.1.0", ""], "0.1.0", ["? host b: there is no version in the record"]),
    ],
)
def test_hosts_of_an_older_version_than_others_or_the_command_are_said(
    hosts: Sequence[str], command: str, said: Sequence[str]
) -> None:
    members = [member(x, 1, version=y) for x, y in zip("abc", hosts, strict=False)]
    assert [
        re.split(", older|;", x)[0] for x in found(living(*members), software=command)
    ] == said
