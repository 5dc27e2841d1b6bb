"""Faults and delays between a caller and an object, which are a part of what users get."""

from changefeed.testing.proxies import Around, Cutting, delaying, proxied

__all__ = ["Around", "Cutting", "delaying", "proxied"]
