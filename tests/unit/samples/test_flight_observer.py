"""The observer of the flights: what it counts, what it writes, and what outlives its host."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from changefeed.feeds.feed import Change, FeedRange, Operation, RangeId
from changefeed.testing.observers import RecordingContext
from samples.flights.changes import Kind, State
from samples.flights.deliveries import Delivery, turns
from samples.flights.observer import Carrier, CarrierDelays, Figures, newest_figures

RANGE = FeedRange(id=RangeId("e1.p00.v00-ff"))


def told(*, epoch: int = 1, host: str = "a") -> RecordingContext:
    return RecordingContext(range=RANGE, epoch=epoch, host=host)


def changes(first: int, *what: tuple[Kind, int | None]) -> Sequence[Change]:
    return [
        Change(
            range_id=RANGE.id,
            sequence=sequence,
            key="N1",
            id="1",
            operation=Operation.REPLACE,
            body=msgspec.json.encode(
                State(
                    kind=kind, carrier="UA", flight="1", origin="EWR", dest="IAH", delay=delay
                )
            ),
            committed_us=sequence,
        )
        for sequence, (kind, delay) in enumerate(what, first)
    ]


DEPARTED = (Kind.DEPARTED, 15)
ARRIVED = (Kind.ARRIVED, -3)
DIVERTED = (Kind.ARRIVED, None)
CANCELLED = (Kind.CANCELLED, None)
SCHEDULED = (Kind.SCHEDULED, None)


def observed(
    directory: Path, context: RecordingContext, *batches: Sequence[Change]
) -> tuple[Path, CarrierDelays]:
    observer = CarrierDelays(str(directory))
    observer.open(context)
    for batch in batches:
        observer.process(batch)
    return directory / RANGE.id, observer


def test_it_counts_delays_and_cancellations_by_carrier(tmp_path: Path) -> None:
    batch = changes(1, SCHEDULED, DEPARTED, ARRIVED, DIVERTED, CANCELLED, (Kind.DEPARTED, 14))
    folder, _ = observed(tmp_path, told(), batch)
    assert newest_figures(folder) == Figures(
        up_to=6,
        carriers={
            "UA": Carrier(
                scheduled=1,
                cancelled=1,
                departed=2,
                late=1,
                departure_delay=29,
                arrived=2,
                timed_arrivals=1,
                arrival_delay=-3,
            )
        },
    )


def test_the_next_owner_goes_on_and_counts_nothing_twice(tmp_path: Path) -> None:
    observed(tmp_path, told(epoch=1), changes(1, DEPARTED, DEPARTED))
    again = changes(2, DEPARTED, DEPARTED)
    folder, _ = observed(tmp_path, told(epoch=2, host="b"), again)
    assert newest_figures(folder).carriers["UA"].departed == 3


def test_a_former_owner_that_wakes_up_late_changes_nothing(tmp_path: Path) -> None:
    folder, former = observed(tmp_path, told(epoch=9), changes(1, DEPARTED))
    observed(tmp_path, told(epoch=10, host="b"), changes(2, DEPARTED))
    former.process(changes(2, DEPARTED, DEPARTED, DEPARTED))
    assert newest_figures(folder).carriers["UA"].departed == 2


def test_every_delivery_is_written_down_also_a_repeated_one(tmp_path: Path) -> None:
    observed(tmp_path, told(epoch=1), changes(1, SCHEDULED), changes(2, DEPARTED, ARRIVED))
    observed(tmp_path, told(epoch=2, host="b"), changes(3, ARRIVED))
    first, second = turns(tmp_path)
    assert (first.range, first.epoch, first.host) == (RANGE.id, 1, "a")
    assert first.deliveries == (
        Delivery(1, "1", "scheduled", "N1", 1, True),
        Delivery(2, "1", "departed", "N1", 2),
        Delivery(3, "1", "arrived", "N1", 3, True),
    )
    assert (second.epoch, second.host, len(second.deliveries)) == (2, "b", 1)


def test_half_a_line_of_a_killed_host_is_left_out(tmp_path: Path) -> None:
    folder, _ = observed(tmp_path, told(), changes(1, SCHEDULED))
    with (folder / "000001.a.tsv").open("a") as file:
        file.write("2\t1\tdeparted\tN1\t2\n3\t1\tarr")
    (turn,) = turns(tmp_path)
    assert [(x.sequence, x.ends_batch) for x in turn.deliveries] == [(1, True), (2, False)]
