"""The limits of a query that the document of an account announces, and one of our own."""

from collections.abc import Mapping
from typing import Final

from cosmos_emulator.errors import bad_request

MAX_LENGTH: Final = 262_144
"""Characters of a query."""
MAX_COUNTS: Final[Mapping[str, int]] = {
    "JOIN": 10,
    "AND": 500,
    "OR": 500,
    "value of IN": 16_000,
    "word or sign": 50_000,
}
"""The last is this emulator's own: so many are read while others wait for a moment only."""


def check_length(length: int) -> None:
    if length > MAX_LENGTH:
        raise bad_request(
            f"The SQL query text exceeded the maximum limit of {MAX_LENGTH} characters."
        )


def check_count(what: str, count: int) -> None:
    if count > MAX_COUNTS[what]:
        raise bad_request(
            f"The query has more than {MAX_COUNTS[what]} of: {what}. Ask in several queries, "
            f"or put values into an array that is a parameter."
        )
