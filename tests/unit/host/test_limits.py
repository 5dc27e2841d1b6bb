"""What a host says in its record that it can take, and what others make of it."""

import pytest

from changefeed.host.limits import limits_by_load, limits_to_split, said_of
from changefeed.host.settings import LeaseSettings
from changefeed.leases.lease import HostName
from changefeed.leases.load import HostLimits

A, B = HostName("a"), HostName("b")


def said(**settings: object) -> str:
    return said_of(LeaseSettings.model_validate(settings))


def test_a_record_says_what_its_host_can_take_and_nothing_else() -> None:
    other = said(capacity=2, max_ranges=3, expiration=600, address="redis://:s3cret@h")
    assert limits_by_load([A], {A: other}) == {A: HostLimits(capacity=2, max_ranges=3)}
    assert "s3cret" not in other
    assert "600" not in other


@pytest.mark.parametrize("text", ["", "no JSON", "{}", '{"leases.capacity": ["x"]}'])
def test_a_host_that_says_nothing_makes_all_balance_by_count(text: str) -> None:
    assert limits_by_load([A, B], {A: said(), B: text}) is None
    assert limits_by_load([A, B], {A: said()}) is None
    assert limits_to_split([A, B], {A: said(split_hot=True), B: text}) == {}


def test_ranges_are_split_where_all_hosts_say_so() -> None:
    splits = said(split_hot=True)
    assert limits_to_split([A, B], {A: splits, B: said()}) == {}
    assert limits_to_split([A, B], {A: splits, B: splits}).keys() == {A, B}
