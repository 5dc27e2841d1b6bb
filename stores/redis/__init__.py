"""Leases in Redis: one hash for each kind of record, and one script for each write."""
