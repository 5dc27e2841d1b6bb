"""Leases in Cosmos DB, in documents that are shared with .NET fleets."""
