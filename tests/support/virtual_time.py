"""The loop of virtual time, which is a part of what users get."""

from changefeed.testing.virtual_time import Deadlock, VirtualTimeLoop

__all__ = ["Deadlock", "VirtualTimeLoop"]
