"""Faults and delays between a caller and an object, which are a part of what users get."""

from changefeed.testing.proxies import Around, FailingCall, delaying, proxied

__all__ = ["Around", "FailingCall", "delaying", "proxied"]
