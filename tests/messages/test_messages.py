"""What errors say is what was reviewed."""

import sys
from pathlib import Path

from tests.support.processes import ended

from .catalogue import PAGE

ROOT = Path(__file__).parents[2]
WRITTEN = "from tests.messages.catalogue import written; print(written(), end='')"


def test_messages_are_those_of_the_reviewed_page() -> None:
    """In a process of its own: other tests register observers, which a sentence would list."""
    said = ended(sys.executable, "-c", WRITTEN, cwd=ROOT)
    assert said.stdout.splitlines() == PAGE.read_text().splitlines(), (
        said.stderr or "read the new sentences, then run: python -m tests.messages"
    )
