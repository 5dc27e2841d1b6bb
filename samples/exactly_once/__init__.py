"""Rows and positions in one transaction: balances, and an outbox for others."""
