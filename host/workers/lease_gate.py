"""The lease, checked between the wrappers of an observer and its next call."""

from changefeed.host.workers.call_watch import CallWatch
from changefeed.host.workers.drain import Drain
from changefeed.host.workers.owned_lease import OwnedLease
from changefeed.observers.errors import LeaseFenced, ObserverFailed


class LeaseGate:
    """The fence of one lease, as ``changefeed.observers.middleware.fence`` describes it."""

    def __init__(self, owned: OwnedLease, drain: Drain, watch: CallWatch) -> None:
        self._owned = owned
        self._drain = drain
        self._watch = watch

    def check(self) -> None:
        """Raise ``LeaseFenced`` from the moment on that another host may own the lease."""
        if not self._owned.may_act:
            raise LeaseFenced(f"the lease of range {self._owned.range_id!r} is not ours")
        self._watch.attempt()

    async def sleep(self, seconds: float) -> None:
        """Wait before the next attempt; raise ``ObserverFailed`` once the worker drains."""
        self._watch.rest()
        await self._drain.sleep(seconds)
        if self._drain.reason is not None:
            reason = f"given up: {self._drain.reason.value}"
            raise ObserverFailed(self._owned.range_id, None, 0, reason)
