"""Booking into a database of one's own, each change exactly once."""
