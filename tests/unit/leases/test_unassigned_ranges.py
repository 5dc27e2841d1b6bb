"""The lag of ranges that no host reads: who reports it, and of which ranges."""

from collections.abc import Collection
from dataclasses import replace

from changefeed.leases.fleet import NOTHING_LISTED
from changefeed.leases.fleet import Fleet as Seen
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease, Member, newest
from tests.support import make

NAMES = ("a", "b", "c")


def view(
    *leases: Lease,
    members: Collection[str] = NAMES,
    dead: Collection[str] = (),
    stopping: Collection[str] = (),
    foreign: Collection[str] = (),
) -> Seen:
    recorded = [
        Member(name=HostName(x), incarnation=Incarnation(x), stopping=x in stopping)
        for x in members
    ]
    fleet = frozenset(map(HostName, {*members, *foreign} - {*dead, *stopping}))
    return replace(
        NOTHING_LISTED,
        leases=newest(leases),
        members={x.name: x for x in recorded},
        dead=frozenset(map(HostName, dead)),
        alive=fleet,
        foreign=frozenset(map(HostName, foreign)),
    )


def test_each_range_without_a_living_reader_is_listed_with_the_reason() -> None:
    found = view(
        make.lease(make.feed_range("read", "0", "8"), "a"),
        make.lease("stops", "b"),
        make.lease("dead", "c"),
        make.lease("foreign", "net"),
        make.lease("free"),
        make.lease(make.feed_range("late", "0", "4")),
        make.lease("paused").paused_because("bad data"),
        make.lease("draining", "a").paused_because("bad data"),
        make.lease("over").ended_in(make.CLOSED),
        dead=["c"],
        stopping=["b"],
        foreign=["net"],
    )
    assert found.unassigned(KeyMap(found.leases.values()).readable()) == {
        "dead": "unowned",
        "foreign": "foreign",
        "free": "unowned",
        "late": "waiting",
        "paused": "paused",
    }
