"""What the page says an action means is what its command says."""

import inspect

import pytest

from changefeed.cli import dead_letters, pause, release
from changefeed.host.operations import letters, ranges


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
