"""What the page says an action means is what its command says; what is said of names."""

import inspect

import pytest

from changefeed.cli.commands import dead_letters
from changefeed.cli.commands import pause as pausing
from changefeed.feeds.feed import RangeId
from changefeed.fleet import claims, letters
from changefeed.fleet.claims import SPLITTING, pause
from changefeed.fleet.phrases import named_leases, open_or_named_leases
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import UserError
from tests.support import make


@pytest.mark.parametrize(
    ("said", "command"),
    [
        (claims.PAUSE_MEANS, pausing.pause),
        (claims.RESUME_MEANS, pausing.resume),
        (letters.REPLAY_MEANS, dead_letters.replay),
        (letters.DISCARD_MEANS, dead_letters.discard),
    ],
)
def test_the_help_of_the_command_has_the_sentence(said: str, command: object) -> None:
    assert said in " ".join((inspect.getdoc(command) or "").split())


LEASES = [make.lease(x) for x in ("north", "south")]


@pytest.mark.parametrize(
    ("known", "name", "advice"),
    [(LEASES, "sotuh", "south"), (LEASES, "x", "status"), ([], "x", "nor of any other")],
)
def test_a_range_without_a_lease_is_told_from_leases_without_any(
    known: list[Lease], name: str, advice: str
) -> None:
    with pytest.raises(UserError, match=f"'{name}'.*{advice}"):
        named_leases(known, [name])


async def test_to_resume_all_leaves_to_a_command_what_it_has_in_hand() -> None:
    leases = await make.leases(*(make.lease(x, at="0") for x in ("north", "south")))
    await pause(leases, [RangeId("north")], SPLITTING)
    await pause(leases, [RangeId("south")], "a person says so")
    said = await claims.resume_ranges(leases, [])
    assert [x.text for x in said] == ["south: resumed"]


def test_without_names_all_that_have_not_ended_are_meant_in_order() -> None:
    ended = make.lease("east", end=make.CLOSED)
    found = open_or_named_leases([LEASES[1], ended, LEASES[0]], [])
    assert [x.range_id for x in found] == ["north", "south"]
    with pytest.raises(UserError, match="east has ended"):
        open_or_named_leases([ended], ["east"])
    assert named_leases([ended], ["east"], also_ended=True) == [ended]
