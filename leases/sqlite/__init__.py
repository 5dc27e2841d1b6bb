"""Leases in a SQLite file: any number of host processes on one machine."""

from changefeed.leases.sqlite.container import SqliteCheckpoints, SqliteLeases, SqliteOwnership

__all__ = ["SqliteCheckpoints", "SqliteLeases", "SqliteOwnership"]
