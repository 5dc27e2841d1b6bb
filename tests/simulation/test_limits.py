"""The limits of a whole story: told by hand, and in worlds of hosts that were broken."""

import pytest

from changefeed.feeds.feed import RangeId
from changefeed.host.decide import Decision
from changefeed.leases.fleet import ExpiryWatch

from .limits import MAX_UNREAD, UnreadWatch, too_many_calls
from .progress import Violation
from .running import simulate
from .world import WorldKind

R1 = RangeId("r1")
DEATH = 10_022  # a host is killed, and the others live on


def look_until(
    seconds: float, watch: UnreadWatch, able: set[str], *, start: float = 0, **more: set[str]
) -> None:
    for now in range(int(start), int(seconds) + 1, 5):
        watch.look(float(now), unread={R1}, able=able, **more)


def test_a_range_that_a_host_could_have_read_may_not_be_without_a_reader_for_long() -> None:
    watch = UnreadWatch()
    look_until(MAX_UNREAD, watch, {"a/1"})
    with pytest.raises(Violation, match="nobody has read r1 for 50 s"):
        look_until(MAX_UNREAD + 5, watch, {"a/1"}, start=MAX_UNREAD + 5)


@pytest.mark.parametrize(
    "name",
    [
        "list",
        "list_fleet",
        "query",
        "put_member",
        "remove_member",
        "ranges",
        "patch",
        "acquire",
        "create",
        "write",
    ],
)
def test_a_call_made_in_a_loop_is_seen(name: str) -> None:
    calls = {name: 100 * 60}
    (found,) = too_many_calls(calls, seconds=60, ranges=3, hosts=3, observed=50)
    assert name in found
    assert "6000 times in 60 s" in found


def test_a_world_whose_hosts_never_see_a_dead_one_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ExpiryWatch, "still_since", lambda _, x, __: dict.fromkeys(x, 1e9))
    with pytest.raises(Violation, match=r"nobody (has read|reads)"):  # noqa: PT012 - any seed
        for seed in range(DEATH, DEATH + 10):
            simulate(seed)


def test_a_world_whose_hosts_list_in_a_loop_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Decision, "wait", lambda *_, **__: 0.05)
    with pytest.raises(Violation, match=r"called list/list_fleet \d+ times in"):
        simulate(10_000)


def test_an_owner_that_wakes_for_half_a_second_and_is_killed_has_lived_until_then() -> None:
    """It beats between two looks: its leases expire that much later."""
    simulate(45_695_734, WorldKind(feed="cosmos", wild=True))


def test_a_host_that_joins_and_is_frozen_between_two_looks_may_be_waited_for() -> None:
    simulate(48_008_279, WorldKind(leases="sqlite", splits=True))
