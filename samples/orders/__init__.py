"""Orders in Cosmos DB, and a view of them that is kept by a fleet of hosts."""
