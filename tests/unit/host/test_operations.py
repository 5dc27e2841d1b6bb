"""What the page says an action means is what its command says; what is said of names."""

import inspect
from dataclasses import replace

import pytest

from changefeed.cli import dead_letters, pause, release
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.host.operations import letters, ranges
from changefeed.host.parts.leased_feed import leases_of
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import UserError
from tests.support import make


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (ranges.PAUSE_MEANS, pause.pause),
        (ranges.RESUME_MEANS, pause.resume),
        (ranges.RELEASE_MEANS, release.release),
        (letters.REPLAY_MEANS, dead_letters.replay_),
        (letters.DISCARD_MEANS, dead_letters.discard),
    ],
)
def test_the_help_of_the_command_has_the_sentence(said: str, command: object) -> None:
    assert said in " ".join((inspect.getdoc(command) or "").split())


LEASES = [Lease(range=FeedRange(id=RangeId(x)), continuation=None) for x in ("north", "south")]
NONE_AT_ALL = (
    "there is no lease of a range 'x', nor of any other: no host has run with these leases, or "
    "they are those of another fleet"
)


@pytest.mark.parametrize(
    ("known", "name", "said"),
    [
        (LEASES, "sotuh", "there is no lease of a range 'sotuh'; did you mean south?"),
        (LEASES, "x", "there is no lease of a range 'x'; changefeed status lists them"),
        ([], "x", NONE_AT_ALL),
    ],
)
def test_a_range_without_a_lease_is_told_from_leases_without_any(
    known: list[Lease], name: str, said: str
) -> None:
    with pytest.raises(UserError) as refused:
        ranges.named(known, [name])
    assert str(refused.value) == said
    with pytest.raises(UserError) as refused:
        leases_of({x.range_id: x for x in known}, [RangeId(name)])
    assert str(refused.value) == said


def test_a_letter_that_there_is_not_is_told_from_none_at_all() -> None:
    with pytest.raises(UserError, match=r"'x'; changefeed dead-letters list names them$"):
        letters.meant_letters([make.letter(1)], ["x"])
    with pytest.raises(UserError, match=r"^there is no dead letter 'x', nor any other$"):
        letters.meant_letters([], ["x"])


def test_ranges_that_are_named_are_meant_in_their_order_and_each_once() -> None:
    found = ranges.meant(LEASES, ["south", "north", "south"])
    assert [x.range_id for x in found] == ["south", "north"]


def test_without_names_all_that_have_not_ended_are_meant_in_order() -> None:
    ended = replace(LEASES[0], range=FeedRange(id=RangeId("east")), ended=True)
    found = ranges.meant([LEASES[1], ended, LEASES[0]], [])
    assert [x.range_id for x in found] == ["north", "south"]
    with pytest.raises(UserError, match="range east has ended: its successors have its keys"):
        ranges.meant([ended], ["east"])
