"""Splitting ranges without the feed, and merging their parts again, from outside of any host.

Limits: hosts of another kind (.NET) do not know ranges that have ended, and would read on
what was split; a fleet in which one owns a lease is refused.
"""
