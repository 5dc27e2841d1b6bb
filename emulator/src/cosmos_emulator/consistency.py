"""The levels of consistency: which one a request has, and which it may ask for."""

from enum import StrEnum
from typing import Final

from cosmos_emulator.errors import bad_request


class Consistency(StrEnum):
    """The levels by their names in Cosmos DB, the strongest first."""

    STRONG = "Strong"
    BOUNDED = "BoundedStaleness"
    SESSION = "Session"
    PREFIX = "ConsistentPrefix"
    EVENTUAL = "Eventual"


_ORDER: Final = tuple(Consistency)
_BY_NAME: Final = {x.lower(): x for x in Consistency}
MOST_BEHIND: Final = 100_000
"""How many transactions, at the most, a region may be behind, of every account."""
MOST_SECONDS: Final = 300
"""How many seconds a region of an account with bounded staleness may be behind."""


def consistency_named(name: str) -> Consistency:
    """Return a level by its name, in any case; ``ValueError`` if there is none."""
    found = _BY_NAME.get(name.lower())
    if found is None:
        raise ValueError(f"There is no consistency {name!r}; there are {', '.join(_ORDER)}.")
    return found


def consistency_asked(header: str | None, account: Consistency) -> Consistency:
    """Return the level of a request; 400 if it is stronger than the account's."""
    if not header:
        return account
    try:
        wanted = consistency_named(header)
    except ValueError as error:
        raise bad_request(f"x-ms-consistency-level: {error}") from error
    if _ORDER.index(wanted) < _ORDER.index(account):
        raise bad_request(
            f"Consistency level {wanted} specified in the request is invalid when service is "
            f"configured with consistency level {account}. Ensure the request consistency "
            f"level is not stronger than the service consistency level."
        )
    return wanted
