"""Who shares the leases: whether heartbeats are enough, or each lease must be renewed.

A processor of another kind knows nothing of our member records: it takes a lease that is not
renewed itself. So each is renewed from the listing on that shows such a processor. One that
goes by its clock alone may take some at once, as it may at any time.

Limits: a processor of another kind shows by its leases only. A host that has seen one goes on
renewing each lease until it restarts, since one without leases may still be there. Where such
processors stay, leave ``leases.renewal`` at ``lease``.
"""

from collections.abc import Collection, Sequence

from changefeed.host.settings import LeaseSettings
from changefeed.leases.lease import HostName, Lease, Member


class Sharing:
    """One host's memory of who shares the leases."""

    def __init__(self, settings: LeaseSettings) -> None:
        self._settings = settings
        self._hosts = set[HostName | None]()  # of our kind, as a record or a lease has said
        self.with_others = False
        """Whether an owner of another kind was seen; it may come back."""
        self.renew_each = True
        """Whether each lease must be renewed, by what was listed last."""

    def observe(self, owned: Collection[Lease], members: Sequence[Member]) -> None:
        """Take in the leases with owners, and all records: what looks dead may yet live."""
        self._hosts |= {x.name for x in members}
        self._hosts |= {x.owner for x in owned if x.has_owner_of_ours}
        if any(x.owner not in self._hosts for x in owned):
            self.with_others = True
        self.renew_each = self._settings.renewal == "lease" or self.with_others
