"""What a look at a fleet may have seen, with what a test does not care about filled in."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from changefeed.host.snapshot import LeaseStatus, Snapshot


def lease_status(name: str, **known: Any) -> LeaseStatus:
    """Return the lease of a range that no host has, at position 0, its lag unknown."""
    unknown: dict[str, Any] = {
        "parents": (),
        "owner": None,
        "incarnation": None,
        "next_owner": None,
        "epoch": 1,
        "ended": False,
        "paused": None,
        "continuation": "0",
        "checkpoint_epoch": 1,
        "lag": None,
        "lag_seconds": None,
        "stamp_age": None,
    }
    return LeaseStatus(range=name, **unknown | known)


def snapshot(leases: Sequence[LeaseStatus], *, seconds: float = 0, **known: Any) -> Snapshot:
    """Return a look, so many seconds after the first."""
    unknown: dict[str, Any] = {
        "feed": "memory:",
        "expiration": 30.0,
        "members": (),
        "ranges_without_lease": (),
    }
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return Snapshot(at=at, leases=leases, **unknown | known)
