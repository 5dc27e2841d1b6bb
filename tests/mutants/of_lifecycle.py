"""Breaks of what a lease, its owner and its reader do in the course of a lease."""

from .mutant import Mutant

_LEASE = "tests/unit/leases/test_lease.py"
_EXPIRY = "tests/unit/leases/test_expiry.py"
_SUSPENDED = "tests/unit/host/test_suspended_machine.py"
_OWNED = "tests/unit/host/workers/test_owned_lease.py"
_DRAIN = "tests/unit/host/workers/test_drain.py"
_DATABASE = "tests/unit/feeds/eventlog/test_database.py"
_RANGES = "tests/unit/host/balancing/test_range_sync.py"

LIFECYCLE = (
    Mutant(
        name="a checkpoint moves the fence",
        file="host/workers/owned_lease.py",
        before="self._container.checkpoint\n        )\n",
        after="self._container.checkpoint\n        )\n"
        "        self._fence_at = self._clock() + self._held_for\n",
        rule=5,
        tests=(_OWNED,),
    ),
    Mutant(
        name="a host goes by a clock that stands still while its machine sleeps",
        file="host/host.py",
        before="        clock: Clock = elapsed_time,\n",
        after="        clock: Clock = lambda: asyncio.get_running_loop().time(),\n",
        rule=5,
        tests=(_SUSPENDED,),
    ),
    Mutant(
        name="hosts that slept along with who looks at them are taken for dead",
        file="host/liveness.py",
        before="clock = asyncio.get_running_loop().time ",
        after='clock = __import__("changefeed.runtime.clock").runtime.clock.elapsed_time ',
        rule=1,
        tests=(_SUSPENDED,),
    ),
    Mutant(
        name="a reset takes hosts that slept along with it for dead",
        file="host/reset.py",
        before="clock = asyncio.get_running_loop().time ",
        after='clock = __import__("changefeed.runtime.clock").runtime.clock.elapsed_time ',
        rule=1,
        tests=(_SUSPENDED,),
    ),
    Mutant(
        name="a checkpoint is a sign of life",
        file="leases/lease.py",
        before="return replace(self, continuation=continuation, checkpoint_epoch",
        after="return replace(self.renewed(), continuation=continuation, checkpoint_epoch",
        rule=1,
        tests=(_LEASE,),
    ),
    Mutant(
        name="taking a lease leaves the request standing",
        file="leases/lease.py",
        before="            next_owner=None,\n            health=self.health.returned(),\n",
        after="            health=self.health.returned(),\n",
        rule=4,
        tests=(_LEASE,),
    ),
    Mutant(
        name="a handoff begins no epoch",
        file="leases/lease.py",
        before="            incarnation=None,\n            epoch=self.epoch + 1,",
        after="            incarnation=None,\n            epoch=self.epoch,",
        rule=4,
        tests=(_LEASE,),
    ),
    Mutant(
        name="a stamp in the future is old",
        file="leases/expiry.py",
        before="at.wall - thing.stamp >= self._longest_still",
        after="abs(at.wall - thing.stamp) >= self._longest_still",
        rule=1,
        tests=(_EXPIRY,),
    ),
    Mutant(
        name="an I/O error of an event log ends its readers",
        file="feeds/eventlog/database.py",
        before="    sqlite3.SQLITE_IOERR: ",
        after="    -1: ",
        rule=10,
        tests=(_DATABASE,),
    ),
    Mutant(
        name="an event log ends hosts that are out of file handles",
        file="feeds/eventlog/database.py",
        before="if code == sqlite3.SQLITE_CANTOPEN and out_of_handles():",
        after="if False:",
        rule=0,
        tests=(_DATABASE,),
    ),
    Mutant(
        name="a page that SQLite finds damaged ends all ranges",
        file="feeds/eventlog/database.py",
        before="    if range_id is not None:\n",
        after="    if False:\n",
        rule=10,
        tests=(_DATABASE,),
    ),
    Mutant(
        name="reading begins again before its checkpoint is stored",
        file="host/workers/delivery.py",
        before="await self._checkpoints.written()  # reading begins there again",
        after="pass",
        rule=12,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="the parts of a page go on after a request",
        file="host/workers/delivery.py",
        before="            if self._drain.reason is not None:\n                return\n"
        "            self._owned.check()",
        after="            self._owned.check()",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a stop does not wait for acknowledgements",
        file="host/workers/delivery.py",
        before="        await self._until_acknowledged()\n        self._checkpoints.advance()\n"
        "        return self._drain.reason",
        after="        if self._drain.reason is not CloseReason.STOPPING:\n"
        "            await self._until_acknowledged()\n        self._checkpoints.advance()\n"
        "        return self._drain.reason",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a handoff does not wait for acknowledgements",
        file="host/workers/delivery.py",
        before="        await self._until_acknowledged()\n        self._checkpoints.advance()\n"
        "        return self._drain.reason",
        after="        if self._drain.reason is not CloseReason.HANDED_OVER:\n"
        "            await self._until_acknowledged()\n        self._checkpoints.advance()\n"
        "        return self._drain.reason",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="the request of a dead host drains its owner",
        file="host/workers/worker.py",
        before="elif lease.next_owner is not None and self._environment.is_alive(",
        after="elif lease.next_owner is not None or self._environment.is_alive(",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a lease that was read is deleted as an echo",
        file="host/balancing/range_sync.py",
        before="if lease.epoch or not keys.share",
        after="if not keys.share",
        rule=9,
        tests=(_RANGES,),
    ),
    Mutant(
        name="a lease that was read is ended as superseded",
        file="host/workers/successors.py",
        before="        not (lease.epoch or lease.ended)\n",
        after="        not lease.ended\n",
        rule=9,
        tests=(_RANGES,),
    ),
)
