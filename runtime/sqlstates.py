"""What of PostgreSQL's errors may pass, by the class of their SQLSTATE."""

from collections.abc import Mapping
from typing import Final

READ_ONLY: Final = "25006"
_MAY_PASS: Final[Mapping[str, str]] = {
    "08": "the connection was lost",
    "40": "another transaction was in the way",
    "53": "the server is short of connections, memory or disk space",
    "55": "another session holds a lock",
    "57": "the server is stopping, starting, or was asked to cancel",
    "58": "the server could not read or write its files; look at its log",
}


def why_it_may_pass(sqlstate: str) -> str | None:
    """Return what is the matter, for people, if asking again can help; else ``None``."""
    if sqlstate == READ_ONLY:
        return "it is a standby now, or set to read only"
    return _MAY_PASS.get(sqlstate[:2])
