"""Records in a container of Cosmos DB, beside leases of .NET or without any."""
