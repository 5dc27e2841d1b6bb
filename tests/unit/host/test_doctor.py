"""What is wrong with a fleet, by some looks at it."""

from collections.abc import Sequence
from dataclasses import replace

from changefeed.host.doctor import Look, diagnose
from changefeed.host.problems import Problem
from changefeed.host.settings import LeaseSettings
from changefeed.host.snapshot import LeaseStatus, MemberStatus
from changefeed.runtime.diagnostics import Severity
from tests.support.snapshots import lease_status, snapshot


def member(
    name: str,
    beats: int,
    *,
    age: float = 0.1,
    stopping: bool = False,
    software: str = "",
    **shared: object,
) -> MemberStatus:
    """Return a member; ``leases__expiration=30`` is a setting that it says."""
    return MemberStatus(
        name=name,
        incarnation=f"{name}-1",
        address="",
        stopping=stopping,
        heartbeats=beats,
        stamp_age=age,
        software=software,
        settings={x.replace("__", "."): value for x, value in shared.items()},
    )


def lease(
    name: str,
    owner: str | None = "a",
    *,
    at: str = "0",
    lag: int | None = 0,
    next_owner: str | None = None,
) -> LeaseStatus:
    return lease_status(
        name, owner=owner, next_owner=next_owner, continuation=at, lag=lag, stamp_age=0.0
    )


def found(
    *looks: tuple[Sequence[MemberStatus], Sequence[LeaseStatus]],
    problems: Sequence[Problem] = (),
    software: str = "",
) -> list[str]:
    """Return what is said of these looks, which are ten seconds apart."""
    seen = [
        Look(
            at=10.0 * n,
            seen=snapshot(leases, members=members, problems=problems),
        )
        for n, (members, leases) in enumerate(looks)
    ]
    shown = diagnose(seen, LeaseSettings(), software)
    marks = {Severity.PROBLEM: "!", Severity.WARNING: "?"}
    return [f"{marks[x.severity]} {x.about}: {x.text}" for x in shown]


def test_a_fleet_that_gets_on_has_nothing_wrong() -> None:
    before = [member("a", 1), member("b", 7)], [lease("r0", lag=9), lease("r1", "b")]
    after = [member("a", 2), member("b", 8)], [lease("r0", at="4", lag=9), lease("r1", "b")]
    assert found(before, after) == []


def test_a_host_without_a_sign_of_life_is_named_with_its_leases() -> None:
    before = [member("a", 1), member("b", 7)], [lease("r0", "b"), lease("r1", "b")]
    later = [([member("a", n), member("b", 7)], before[1]) for n in (2, 3)]
    assert found(before, *later) == [
        "! host b: it has given no sign of life for 20 s, and 2 leases have its name"
    ]


def test_too_short_a_look_calls_no_host_silent() -> None:
    looks = [([member("a", 1)], ())] * 2
    assert found(*looks) == [
        "? fleet: 10 s are too few to see whether a lives: hosts give a sign of life every 10 s"
    ]


def test_a_fleet_without_a_host_is_a_problem() -> None:
    looks = [((), [lease("r0", None, lag=9)])] * 3
    assert found(*looks) == ["! fleet: no host runs: what is appended to the feed is not read"]
    assert found(((), ()), ((), ())) == found(*looks)


def test_hosts_that_were_killed_or_keep_no_record_are_not_said_to_be_missing() -> None:
    killed = [([member("a", 1)], [lease("r0", None)])] * 3
    assert found(*killed) == ["! host a: it has given no sign of life for 20 s"]
    foreign = [((), [lease("r0", "net")])] * 2
    assert found(*foreign) == ["? leases: 1 belong to net, which keeps no record"]


def test_clocks_that_are_ahead_or_behind_are_said_and_by_how_much() -> None:
    looks = [
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
    assert found(*looks) == [
        "! host a: its clock is 400 s ahead of this machine's",
        "? host b: its clock is 50 s behind this machine's",
    ]


def test_an_old_stamp_of_a_host_that_is_silent_is_no_wrong_clock() -> None:
    looks = [([member("a", 1, age=500.0 + n)], ()) for n in range(3)]
    assert found(*looks) == ["! host a: it has given no sign of life for 20 s"]


def test_a_range_with_changes_and_no_new_checkpoint_is_said() -> None:
    looks = [([member("a", n)], [lease("r0", at="4", lag=9)]) for n in range(4)]
    assert found(*looks) == [
        "? range r0: it has 9 changes, and a has checkpointed nothing for 30 s"
    ]


def test_a_range_that_is_known_to_fail_is_said_once() -> None:
    failing = Problem(kind="failing", message="no such table", range="r0", owner="a")
    looks = [([member("a", n)], [lease("r0", at="4", lag=9)]) for n in range(4)]
    assert found(*looks, problems=[failing]) == ["! range r0: failing: no such table"]


def test_what_is_paused_is_a_warning() -> None:
    paused = Problem(kind="paused", message="bad data", range="r0")
    looks = [([member("a", n)], [lease("r0", None)]) for n in range(2)]
    assert found(*looks, problems=[paused]) == ["? range r0: paused: bad data"]


def test_a_foreign_owner_is_said_with_its_leases() -> None:
    leases = [lease("r0", "net"), lease("r1", "net"), lease("r2")]
    looks = [([member("a", n)], leases) for n in range(2)]
    assert found(*looks) == ["? leases: 2 belong to net, which keeps no record"]


def test_uneven_loads_are_said_unless_leases_move() -> None:
    leases = [lease(f"r{n}") for n in range(4)]
    looks = [([member("a", n), member("b", n)], leases) for n in range(3)]
    assert found(*looks) == ["? fleet: leases are not shared evenly: a 4, b 0"]
    moving = looks[1][0], [*leases[1:], lease("r0", next_owner="b")]
    assert found(looks[0], moving, looks[2]) == []


def test_hosts_that_balance_by_load_may_have_different_numbers_of_leases() -> None:
    leases = [lease(f"r{n}") for n in range(4)]
    looks = [
        ([member(x, n, leases__balance="load") for x in ("a", "b")], leases) for n in range(3)
    ]
    assert found(*looks) == []
    one_counts = [([looks[n][0][0], member("b", n)], leases) for n in range(3)]
    assert "? fleet: leases are not shared evenly: a 4, b 0" in found(*one_counts)


Seen = tuple[Sequence[MemberStatus], Sequence[LeaseStatus]]


def living(*members: MemberStatus) -> list[Seen]:
    """Return two looks between which all of them have given a sign of life."""
    moved = [replace(x, heartbeats=x.heartbeats + 1) for x in members]
    return [(members, ()), (moved, ())]


def test_settings_that_differ_are_said_by_value_and_host() -> None:
    looks = living(
        member("a", 1, leases__max_handoff_time=30.0, observer__name="orders:Bill"),
        member("b", 1, leases__max_handoff_time=30.0, observer__name="orders:Ship"),
        member("c", 1, leases__max_handoff_time=0.0, observer__name="orders:Bill"),
    )
    assert found(*looks) == [
        "? fleet: leases.max_handoff_time differs between hosts: 30.0 on a, b; 0.0 on c",
        "? fleet: observer.name differs between hosts: orders:Bill on a, c; orders:Ship on b",
    ]


def test_what_a_host_can_take_may_differ() -> None:
    strong = member("a", 1, leases__capacity=4.0, leases__max_ranges=None)
    assert found(*living(strong, member("b", 1, leases__capacity=1.0))) == []


def test_a_host_that_expires_leases_sooner_than_others_renew_them_is_a_problem() -> None:
    looks = living(
        member("a", 1, leases__expiration=15, leases__renew_interval=5),
        member("b", 1, leases__expiration=60, leases__renew_interval=20),
    )
    assert found(*looks)[0] == (
        "! host a: it takes leases that have not been renewed for 15 s, and b renews less "
        "often: living hosts lose theirs to it"
    )


def test_settings_of_hosts_that_died_or_stop_or_say_none_do_not_count() -> None:
    dead, alive = member("a", 1, x=1), member("b", 1, x=2)
    silent = ([dead, alive], ()), ([dead, replace(alive, heartbeats=2)], ())
    assert found(*silent, software="")[1:] == []
    assert found(*living(replace(dead, stopping=True), alive)) == []
    assert found(*living(member("a", 1), alive)) == []


def test_hosts_of_an_older_version_are_said_once_for_each_version() -> None:
    looks = living(
        member("a", 1, software="0.10.0"),
        member("b", 1, software="0.9.2"),
        member("c", 1, software="0.9.2"),
        member("e", 1, software="0.10.0rc1"),
    )
    older = "older than 0.10.0 of other hosts"
    assert found(*looks, software="0.9") == [
        f"? hosts b, c: version 0.9.2, {older}",
        f"? host e: version 0.10.0rc1, {older}",
    ]


def test_hosts_older_than_the_command_are_said_though_they_are_alike() -> None:
    looks = living(member("a", 1, software="0.1.0"), member("b", 1, software="0.1.0"))
    assert found(*looks, software="0.1.0") == []
    assert found(*looks, software="0.2.0") == [
        "? hosts a, b: version 0.1.0, older than 0.2.0 of this command"
    ]
