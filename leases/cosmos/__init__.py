"""Leases in Cosmos DB, shared with .NET fleets; the vendor's client is known here only."""

from changefeed.leases.cosmos.opening import open_leases, open_store

__all__ = ["open_leases", "open_store"]
