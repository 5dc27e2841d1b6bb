"""Leases in Azure Blob Storage, laid out as the Event Hubs SDKs lay out theirs."""
