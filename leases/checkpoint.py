"""How far a range is done: what its owner writes, and whoever reads it next begins with.

Stores and hosts pass the value on. Only it knows what text a store keeps of it, so that what is
known of a range can grow without them.

Limits: processors of .NET keep a position, and no text of ours (``cosmos.documents``).
"""

from dataclasses import dataclass

from changefeed.feeds.feed import Position


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All below ``position`` is done."""

    position: Position

    @property
    def text(self) -> str:
        """What a store keeps."""
        return self.position

    @classmethod
    def of_text(cls, text: str) -> "Checkpoint":
        """Read what a store has kept."""
        return cls(Position(text))
