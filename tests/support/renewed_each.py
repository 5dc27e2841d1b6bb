"""Leases that processors of another kind may share: each is renewed by its owner."""

from changefeed.leases.memory import MemoryLeases


class RenewedEach(MemoryLeases):
    renew_each = True
