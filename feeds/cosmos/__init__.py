"""A container of Azure Cosmos DB as a feed. No client is imported here: addresses need none."""
