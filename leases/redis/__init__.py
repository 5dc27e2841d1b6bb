"""Leases in Redis: one hash for each kind of record, and one script for each write."""

from changefeed.leases.redis.opening import open_checkpoints, open_leases, open_ownership

__all__ = ["open_checkpoints", "open_leases", "open_ownership"]
