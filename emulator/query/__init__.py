"""The part of Cosmos DB's SQL that clients of leases and simple applications need."""
