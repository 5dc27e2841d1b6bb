"""What a master does next."""

import pytest
from msgspec.structs import replace

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.brokers.master import Step, is_master, next_step
from changefeed.log.brokers.members import Heartbeat, Membership
from changefeed.log.catalog.catalog import Catalog, Cluster, Row, first_catalog
from changefeed.log.catalog.ranges import ranges_of
from changefeed.log.catalog.transitions import (
    begin_ending,
    close_and_open,
    new_collection,
    open_first_era,
    with_merge,
    with_split,
)
from changefeed.log.core_settings import CoreSettings

SETTINGS = CoreSettings(settle=0.5, seal_patience=3.0)


def heartbeat(
    name: str, incarnation: str = "i", *, leaving: bool = False, lost: int = 0
) -> Heartbeat:
    return Heartbeat(name=name, incarnation=incarnation, beat=1, leaving=leaving, lost=lost)


def there(*heartbeats: Heartbeat, quiet_for: float = 1.0, steady: bool = False) -> Membership:
    return Membership(
        living={x.name: x for x in heartbeats}, quiet_for=quiet_for, steady=steady
    )


def row(name: str, incarnation: str = "i") -> Row:
    return Row(broker=name, incarnation=incarnation)


def in_era(*rows: Row) -> Catalog:
    empty = first_catalog(Cluster(identity="c" * 32))
    orders = new_collection(empty, "orders", parts=2, identity="o" * 32, now_us=1)
    return open_first_era(replace(empty, collections=(orders,)), rows, 1)


def step(catalog: Catalog, membership: Membership, **more: object) -> Step | None:
    return next_step(catalog, membership, SETTINGS, **more)  # type: ignore[arg-type]


def ending(*planned: Row) -> Step:
    return Step(name="begin_ending", rows=planned)


def sealing(*rows: Row) -> Step:
    return Step(name="seal_rows", rows=rows)


def test_the_first_era_is_opened_once_membership_stands_still() -> None:
    empty = first_catalog(Cluster(identity="c" * 32))
    assert step(empty, there(heartbeat("a"), quiet_for=0.4)) is None
    assert step(empty, there(heartbeat("a"))) == Step(name="open_first_era", rows=(row("a"),))


def test_an_era_ends_when_a_broker_joins_or_dies_once_membership_stands_still() -> None:
    catalog = in_era(row("a"), row("b"))
    assert step(catalog, there(heartbeat("a"), heartbeat("b"))) is None
    assert step(catalog, there(heartbeat("a"), quiet_for=0.4)) is None
    assert step(catalog, there(heartbeat("a"))) == ending(row("a"))
    three = there(heartbeat("a"), heartbeat("b"), heartbeat("c"))
    assert step(catalog, three) == ending(row("a"), row("b"), row("c"))


def test_an_era_ends_at_once_where_a_broker_died_and_no_other_change_is_in_sight() -> None:
    catalog = in_era(row("a"), row("b"))
    dead = there(heartbeat("a"), quiet_for=0.0, steady=True)
    assert step(catalog, dead) == ending(row("a"))
    joins = there(heartbeat("a"), heartbeat("b"), heartbeat("c"), quiet_for=0.0, steady=True)
    assert step(catalog, joins) is None
    empty = first_catalog(Cluster(identity="c" * 32))
    assert step(empty, dead) is None


def test_an_era_ends_for_a_broker_that_leaves_or_lost_its_row_or_was_started_again() -> None:
    a = row("a")
    assert step(in_era(a), there(heartbeat("a", leaving=True))) is None  # the last one
    leaving = there(heartbeat("a"), heartbeat("b", leaving=True))
    assert step(in_era(a, row("b")), leaving) == ending(a)
    assert step(in_era(a), there(heartbeat("a", lost=1))) == ending(a)
    assert step(in_era(row("a", "old")), there(heartbeat("a"))) == ending(a)


def test_living_brokers_end_their_rows_themselves_for_a_while() -> None:
    catalog = begin_ending(in_era(row("a"), row("b")), 1, [row("a")])
    both = there(heartbeat("a"), heartbeat("b"))
    assert step(catalog, both, ending_for=2.9) is None
    assert step(catalog, both, ending_for=3.0) == sealing(row("a"), row("b"))
    assert step(catalog, both, ending_for=3.0, sealed={"a"}) == sealing(row("b"))


def test_the_row_of_a_dead_broker_is_ended_at_once() -> None:
    catalog = begin_ending(in_era(row("a"), row("b")), 1, [row("a")])
    assert step(catalog, there(heartbeat("a"))) == sealing(row("b"))
    again = there(heartbeat("a"), heartbeat("b", "new"))
    assert step(catalog, again) == sealing(row("b"))


def test_the_next_era_opens_only_when_every_row_is_sealed() -> None:
    catalog = begin_ending(in_era(row("a"), row("b")), 1, [row("a")])
    alone = there(heartbeat("a"), heartbeat("b"))
    assert step(catalog, alone, sealed={"a"}) is None
    assert step(catalog, alone, sealed={"a", "b"}) == Step(name="close_and_open")


def test_partitions_follow_from_the_brokers_of_an_era_and_steps_may_be_repeated() -> None:
    catalog = in_era(row("a"))
    ending = begin_ending(catalog, 1, [row("a"), row("b")])
    assert begin_ending(ending, 1, [row("a")]) is ending
    after = close_and_open(ending, 1, {"a": 3}, 2)
    assert close_and_open(after, 1, {"a": 3}, 2) is after
    assert [(x.id, x.broker) for x in ranges_of(after, "orders").all()] == [
        ("e1.p01.v00-ff", "a"),
        ("e1.p02.v00-ff", "a"),
        ("e2.p01.v00-ff", "a"),
        ("e2.p02.v00-ff", "b"),
    ]
    assert [(x.number, x.state) for x in after.eras] == [(1, "closed"), (2, "open")]


def test_a_master_that_comes_late_closes_no_other_era_than_it_meant() -> None:
    opened = in_era(row("a"))
    late = {"a": 1}
    assert close_and_open(opened, 1, late, 1) is opened
    second = close_and_open(begin_ending(opened, 1, [row("a")]), 1, late, 1)
    ending = begin_ending(second, 2, [row("a")])
    assert close_and_open(ending, 1, late, 1) is ending


def test_the_first_in_name_of_the_living_is_master_by_number() -> None:
    both = there(heartbeat("broker-10"), heartbeat("broker-9"))
    assert is_master("broker-9", both)
    assert not is_master("broker-10", both)


def test_a_split_halves_virtual_parts_in_the_next_era_and_a_merge_joins_two() -> None:
    def cuts(found: Catalog) -> object:
        return found.reshaping["orders"]

    def next_era(found: Catalog) -> Catalog:
        assert found.era is not None
        ending = begin_ending(found, found.era.number, [row("a")])
        return close_and_open(ending, found.era.number, {"a": 1}, 1)

    split = with_split(in_era(row("a")), "orders", RangeId("e1.p01.v00-ff"))
    assert cuts(split) == ((0, 128), (0,))
    with pytest.raises(FeedRefused, match="being changed"):
        with_split(split, "orders")
    quarters = with_split(next_era(split), "orders")
    assert cuts(quarters) == ((0, 64, 128, 192), (0, 128))
    opened = next_era(quarters)
    assert cuts(with_merge(opened, "orders", RangeId("e3.p01.v40-7f"))) == (
        (0, 64, 192),
        (0, 128),
    )
    assert cuts(with_merge(opened, "orders")) == ((0, 128), (0,))
    for name in ("e3.p01.vc0-ff", "e1.p01.v00-ff"):  # the last of its part, and an old one
        with pytest.raises(FeedRefused, match=name):
            with_merge(opened, "orders", RangeId(name))
