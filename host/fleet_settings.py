"""The settings that hosts of a fleet should have alike, as their member records say them.

Hosts decide each by its own settings: who has expired, what is delivered to which observer,
where what it fails on is put. Hosts that differ do different things with the same range, which
may be meant for as long as a rolling restart takes. Secrets are left out, and of the options
of an observer, which may hold some, only a digest is kept.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from changefeed.host.settings import ObserverSettings, Settings
from changefeed.leases.addresses import without_secrets

SharedSettings = Mapping[str, Any]
"""Values by the names of settings: ``leases.expiration``."""

_LEASES = (
    "expiration",
    "renew_interval",
    "balance_interval",
    "rebalance_delay",
    "max_handoff_time",
    "max_clock_skew",
)
_OBSERVER = ("name", "checkpoint", "concurrency", "timeout", "on_failure")
_DIGITS = 8


def shared_settings(settings: Settings) -> str:
    """Return them as the JSON text of a member record."""
    start = settings.feed.start_at
    shared = {
        "feed.start": start if isinstance(start, str) else start.isoformat(),
        **{f"leases.{x}": getattr(settings.leases, x) for x in _LEASES},
        **{f"observer.{x}": getattr(settings.observer, x) for x in _OBSERVER},
        "observer.options": _digest(settings.observer),
    }
    if settings.observer.on_failure == "dead-letter":
        shared["observer.dead_letters"] = without_secrets(settings.observer.dead_letters)
    return msgspec.json.encode(shared).decode()


def read_shared_settings(text: str) -> SharedSettings:
    """Return what a member record says; nothing, where it says nothing that can be read."""
    try:
        found: SharedSettings = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return {}
    return found


def _digest(settings: ObserverSettings) -> str:
    options = msgspec.json.encode(settings.options, order="sorted", enc_hook=str)
    return hashlib.sha256(options).hexdigest()[:_DIGITS]
