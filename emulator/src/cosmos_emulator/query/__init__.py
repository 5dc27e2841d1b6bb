"""Cosmos DB's SQL: read, planned for clients that merge ranges themselves, and run."""
