"""What errors say is what was reviewed."""

from .catalogue import PAGE, written


def test_messages_are_those_of_the_reviewed_page() -> None:
    assert written().splitlines() == PAGE.read_text().splitlines(), (
        "read the new sentences, then run: python -m tests.messages"
    )
