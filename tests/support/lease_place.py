"""Where a fleet keeps its leases: for this process, and as flags for others."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.container import LeaseContainer


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasePlace:
    """One address, or those of ownership and checkpoints; ``keys`` open them, by backend."""

    addresses: Sequence[str]
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def flags(self) -> Sequence[str]:
        """What a host needs on its command line."""
        if len(self.addresses) == 1:
            return [f"--leases={self.addresses[0]}", "--set=leases.create=true"]
        names = ("leases.address", "leases.checkpoints")
        both = zip(names, self.addresses, strict=True)
        return ["--set=leases.create=true", *(f"--set={x}={y}" for x, y in both)]

    @property
    def environment(self) -> dict[str, str]:
        return {f"CHANGEFEED_BACKENDS__{x.upper()}__KEY": key for x, key in self.keys.items()}

    def open(self) -> AbstractAsyncContextManager[LeaseContainer]:
        """Open it, and create it if it is not there."""
        sections = {name: {"key": key} for name, key in self.keys.items()}
        options = OpenOptions(create=True, backends=sections)
        if len(self.addresses) == 1:
            return open_container(self.addresses[0], options)
        ownership, checkpoints = self.addresses
        return open_stores(ownership, checkpoints, options)
