"""What commands make of their flags before they do anything."""

from contextlib import nullcontext

import pytest

from changefeed.cli.commands.status import Sort
from changefeed.cli.letters import check_choice
from changefeed.cli.resetting import check
from changefeed.cli.status_tables import View, refuse_contradictions
from changefeed.fleet.letters import by_observer, skipped
from changefeed.fleet.reset import check_position
from changefeed.runtime.errors import UserError
from tests.support import make

ALL = View()
BY_RATE = View(sort=Sort.RATE)
BY_LAG = View(sort=Sort.LAG)


@pytest.mark.parametrize(
    ("view", "flags", "taken"),
    [
        (ALL, "", True),
        (ALL, "json watch", True),
        (BY_LAG, "", True),
        (BY_LAG, "json", False),
        (View(pattern="a*"), "json", False),
        (BY_RATE, "watch", True),
        (BY_RATE, "", False),  # a rate takes two looks
    ],
)
def test_flags_of_status_that_contradict_each_other_are_refused(
    view: View, flags: str, *, taken: bool
) -> None:
    given = {x: x in flags.split() for x in ("json", "watch")}
    with nullcontext() if taken else pytest.raises(UserError):
        refuse_contradictions(view, **given)


def test_letters_of_another_observer_are_left_with_what_replays_them() -> None:
    own, other = make.letter(2, observer="me").head, make.letter(3, observer="you").head
    assert by_observer([own, other], "me") == ([own], [other])
    (said,) = skipped([other, other])
    assert "2 letters of observer you" in said
    assert "--of=you" in said


@pytest.mark.parametrize(
    ("names", "all_", "of"), [([], False, None), (["a"], True, None), (["a"], False, "me")]
)
def test_letters_are_named_or_all_meant_and_not_both(
    *, names: list[str], all_: bool, of: str | None
) -> None:
    with pytest.raises(UserError):
        check_choice("discard", names, all_=all_, of=of)


@pytest.mark.parametrize(("names", "all_"), [([], False), (["r0"], True)])
def test_ranges_to_reset_are_named_or_all_meant_and_not_both(
    *, names: list[str], all_: bool
) -> None:
    with pytest.raises(UserError, match="--all"):
        check(names, "now", all_=all_)


def test_a_position_is_a_position_of_one_range_that_is_named() -> None:
    check_position(["r0"], "12/34")
    check_position([], "now")
    for names in ([], ["r0", "r1"]):
        with pytest.raises(UserError, match="12/34"):
            check_position(names, "12/34")
