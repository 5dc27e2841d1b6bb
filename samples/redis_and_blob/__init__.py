"""Ownership in Redis, checkpoints in Azure Blob: each where it fits, with real servers."""
