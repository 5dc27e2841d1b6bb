"""What a scout makes of writes to leases: a probe that is hit wrongly shows nothing."""

import pytest
from msgspec.structs import replace

from changefeed.leases.lease import HostName, Incarnation, Lease
from tests.support import make

from .checkers import OPERATOR
from .probes import Probe
from .scout import new_owner, pauses, requests

A, B = HostName("a"), HostName("b")
OURS = make.lease("r1").taken_by(A, Incarnation("a/1"))
ASKED = OURS.requested_by(B)
BY_B = OURS.taken_by(B, Incarnation("b/1"))


@pytest.mark.parametrize(
    ("before", "after", "writer", "probe"),
    [
        (ASKED, ASKED.handed_over(), "a/1", Probe.HANDED_OVER),
        (ASKED, BY_B, "b/1", Probe.ROBBED),
        (OURS, BY_B, "b/1", Probe.EXPIRED),
        (OURS, OURS.taken_by(A, Incarnation("a/2")), "a/2", Probe.OWN_AGAIN),
        (OURS, OURS.taken_by(A, Incarnation("a/1")), "a/1", None),
        (OURS, OURS.evicted(), OPERATOR, None),
        (OURS.released(), BY_B, "b/1", None),
    ],
)
def test_how_a_lease_came_to_its_next_owner(
    before: Lease, after: Lease, writer: str, probe: Probe | None
) -> None:
    assert new_owner(before, after, writer) is probe


@pytest.mark.parametrize(
    ("after", "writer", "probe"),
    [
        (OURS, "b/1", Probe.WITHDRAWN),
        (OURS, "a/1", Probe.REQUEST_DROPPED),
        (OURS, OPERATOR, None),
        (ASKED.renewed(), "a/1", None),
        (ASKED.handed_over(), "a/1", None),
    ],
)
def test_what_became_of_a_request(after: Lease, writer: str, probe: Probe | None) -> None:
    assert [*requests(ASKED, after, writer)] == [x for x in [probe] if x]


def test_what_a_pause_meets_begins_with_and_ends_in() -> None:
    paused = replace(OURS, paused="it failed")
    assert [*pauses(OURS, paused, "a/1")] == [Probe.PAUSED_BY_HOST]
    assert [*pauses(OURS, paused, OPERATOR)] == []
    assert [*pauses(paused, OURS, OPERATOR)] == [Probe.RESUMED]
    assert [*pauses(ASKED, replace(ASKED, paused="stop"), OPERATOR)] == [
        Probe.HANDOFF_MET_PAUSE
    ]
