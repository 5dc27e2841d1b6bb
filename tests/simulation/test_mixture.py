"""The command that is printed for a seed lives through the same story, in any world."""

import shlex

import pytest
import typer
from typer.testing import CliRunner

from .__main__ import main
from .mixture import MIXTURE, WorldKind
from .outcome import Outcome


@pytest.mark.parametrize("kind", MIXTURE, ids=lambda x: x.flags)
def test_the_flags_of_a_world_are_those_that_the_command_takes_for_it(
    kind: WorldKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived = list[tuple[WorldKind, int]]()

    def live(self: WorldKind, seed: int) -> Outcome:
        lived.append((self, seed))
        return Outcome(
            seed=seed, feed="", hours=0, events=0, deliveries=0, duplicates=0, stale_reads=0
        )

    monkeypatch.setattr(WorldKind, "live", live)
    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, ["--seed", "7", *shlex.split(kind.flags)])
    assert (ended.exit_code, lived) == (0, [(kind, 7)])


def test_every_world_comes_twice_in_the_mixture() -> None:
    assert (len(MIXTURE), sum(x.troubled for x in MIXTURE)) == (76, 38)
