"""What is said of hosts."""

from collections.abc import Sequence
from typing import Any, Final

from changefeed.feeds.feed import RangeId
from changefeed.fleet.doctor import diagnose
from changefeed.fleet.phrases import named_leases, open_or_named_leases
from changefeed.fleet.status import HostStatus, RangeStatus, Totals
from changefeed.host.failures import incomplete_stop
from changefeed.host.membership import name_taken
from changefeed.leases.lease import HostName, Incarnation
from changefeed.runtime.calls import unexpected_cancellation
from tests.support import make

from .table import Table

HOSTS: Final = Table("Hosts and fleets")

R0 = RangeId("r0")
LEASES = [make.lease(x) for x in ("north", "south")]


@HOSTS.says("another process has the name")
def _name_taken() -> object:
    return str(name_taken(HostName("a"), Incarnation("a-1")))


@HOSTS.says("an observer that cancels tasks of the host")
def _cancelled() -> object:
    return str(unexpected_cancellation("the worker of range r0", "observer shop:Shop"))


HOSTS.each(
    lambda parts: str(incomplete_stop(*parts)),
    {
        "a stop that cut off an observer": ([R0], [], []),
        "a stop that could not release a lease": ([], [R0], []),
        "a stop in which an observer did not close": ([], [], [R0]),
        "a stop that left many leases": ([], [RangeId(f"r{n:04}") for n in range(9_999)], []),
    },
)
HOSTS.each(
    lambda known: named_leases(*known),
    {
        "a range whose name is mistyped": (LEASES, ["sotuh"]),
        "a range that there is not": (LEASES, ["x"]),
        "leases of no range at all": ([], ["x"]),
    },
)


@HOSTS.says("a range that has ended is named")
def _ended() -> object:
    return open_or_named_leases([LEASES[0].ended_in(make.CLOSED)], ["north"])


def _member(name: str, beats: int, **known: Any) -> HostStatus:
    usual = {"stamp_age": 0.1, "version": "0.2.0"}
    return make.host_seen(name, incarnation=f"{name}-1", heartbeats=beats, **{**usual, **known})


def _found(looks: Sequence[tuple[Sequence[HostStatus], Sequence[RangeStatus]]]) -> list[str]:
    found = diagnose(make.looks_at(looks), beat=10.0, max_skew=300.0, software="0.2.0")
    return [f"{x.about}: {x.text}" for x in found]


@HOSTS.says("a doctor at a fleet in which much is wrong")
def _doctor() -> object:
    leases = [
        make.range_seen("r0", "a", position="4", lag=9),
        make.range_seen("r1", "b"),
        make.range_seen("r2", "net"),
        make.range_seen("r3", "a"),
        make.range_seen("r4", "a"),
    ]
    return _found(
        [
            (
                [
                    _member("a", n, stamp_age=-400.0),
                    _member("b", 7),
                    make.host_seen("net", state="foreign", total=Totals(ranges=1)),
                    _member("c", n, version="0.1.0"),
                ],
                leases,
            )
            for n in range(4)
        ]
    )


HOSTS.each(
    _found,
    {
        "a doctor at a fleet without a host": [
            ((), [make.range_seen("r0", note="no host has its lease")])
        ]
        * 3,
        "a doctor that looked for too short a time": [([_member("a", 1)], ())] * 2,
    },
)
