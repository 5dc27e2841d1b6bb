"""Wrappers around an observer: retries, poison changes, concurrency, timeouts, the fence."""
