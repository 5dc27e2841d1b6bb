"""Leases in PostgreSQL: a table for each kind of record, and one statement for each write."""
