"""Who shares the leases, as their listings say it."""

from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.balancing.sharing import Sharing
from changefeed.host.settings import LeaseSettings
from changefeed.leases.lease import HostName, Incarnation, Lease

OWNER = HostName("a")


def lease(name: str, incarnation: Incarnation | None) -> Lease:
    found = FeedRange(id=RangeId(name))
    return Lease(range=found, owner=OWNER, incarnation=incarnation, epoch=1)


def test_an_owner_without_a_record_is_of_another_kind_and_stays_so() -> None:
    sharing = Sharing(LeaseSettings(renewal="host"))
    sharing.observe([lease("0", None)], [])
    sharing.observe([], [])
    assert sharing.renew_each


def test_a_host_is_of_our_kind_if_one_of_its_leases_says_so() -> None:
    sharing = Sharing(LeaseSettings(renewal="host"))
    handed_over = lease("1", None)  # and not taken yet
    sharing.observe([handed_over, lease("0", Incarnation("a-1"))], [])
    sharing.observe([handed_over], [])
    assert not sharing.renew_each
