"""Leases in PostgreSQL: a table for each kind of record, and one statement for each write."""

from changefeed.leases.postgres.opening import open_checkpoints, open_leases, open_ownership

__all__ = ["open_checkpoints", "open_leases", "open_ownership"]
