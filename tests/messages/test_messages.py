"""What errors say is what was reviewed."""

from pathlib import Path

from tests.support.processes import python

from .catalogue import PAGE

ROOT = Path(__file__).parents[2]
WRITTEN = "from tests.messages.catalogue import written; print(written(), end='')"


def test_messages_are_those_of_the_reviewed_page() -> None:
    """In a process of its own: other tests register observers, which a sentence would list."""
    said = python(WRITTEN, cwd=ROOT).stdout
    assert said.splitlines() == PAGE.read_text().splitlines(), (
        "read the new sentences, then run: python -m tests.messages"
    )
