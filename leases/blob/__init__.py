"""Leases in Azure Blob Storage, laid out as the Event Hubs SDKs lay out theirs."""

from changefeed.leases.blob.opening import open_checkpoints, open_leases, open_ownership

__all__ = ["open_checkpoints", "open_leases", "open_ownership"]
