"""Breaks of what a host notices: other files, older listings, strangers at its ports."""

from .mutant import Mutant

_SQLITE = "tests/unit/leases/test_sqlite.py"
_RANGES = "tests/unit/host/balancing/test_range_sync.py"
_REMEMBERING = "tests/unit/leases/test_remembering.py"
_WEB = "tests/integration/test_web_server.py"
_EVENTLOG = "tests/integration/test_eventlog.py"

GUARDS = (
    Mutant(
        name="a file that is overwritten in its place goes unnoticed",
        file="runtime/open_database.py",
        before="        return None if self._is_marked_as_before() else Became.OVERWRITTEN\n",
        after="        return None\n",
        rule=0,
        tests=(_SQLITE, _EVENTLOG),
    ),
    Mutant(
        name="any file of the same kind is the file that was opened",
        file="runtime/open_database.py",
        before="return now is not None and before[:-1] == now[:-1] and",
        after="return now is not None and",
        rule=0,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="an older copy put over a file goes unnoticed",
        file="runtime/open_database.py",
        before="before[:-1] == now[:-1] and (now[-1] or 0) >= (before[-1] or 0)",
        after="before[:-1] == now[:-1]",
        rule=0,
        tests=(_SQLITE, _EVENTLOG),
    ),
    Mutant(
        name="a new lease file keeps its name in the log of writes",
        file="leases/sqlite/file.py",
        before='            connection.execute("pragma wal_checkpoint(passive)")\n',
        after="",
        rule=0,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a lease that was deleted is acquired under an epoch that was seen",
        file="leases/remembering.py",
        before="return lease if lease.epoch > seen else replace(lease, epoch=seen + 1)",
        after="return lease",
        rule=5,
        tests=(_REMEMBERING,),
    ),
    Mutant(
        name="a deleted lease begins its epochs again",
        file="host/balancing/range_sync.py",
        before="memory.recreated(Lease(range=fresh_range, continuation=position))",
        after="Lease(range=fresh_range, continuation=position)",
        rule=5,
        tests=(_RANGES,),
    ),
    Mutant(
        name="a deleted lease goes on from a checkpoint of an epoch that is over",
        file="leases/remembering.py",
        before="if begun_in != epoch or checkpoint is None:",
        after="if checkpoint is None:",
        rule=5,
        tests=(_REMEMBERING,),
    ),
    Mutant(
        name="a deleted lease goes on from the checkpoint of a range that ended",
        file="leases/remembering.py",
        before="                self._checkpoints.pop(name, None)\n",
        after="                pass\n",
        rule=9,
        tests=(_REMEMBERING,),
    ),
    Mutant(
        name="the lease of a part of a merged range is never created again",
        file="host/balancing/range_sync.py",
        before="        missing += [feed.part(low, high) for low, high in bounds]\n",
        after="",
        rule=12,
        tests=("tests/integration/cosmos/test_feed_under_host.py",),
    ),
    Mutant(
        name="one torn listing makes a second lease on the keys of a part",
        file="host/balancing/range_sync.py",
        before="bounds = parts_without_lease(ranges, listed_twice)",
        after="bounds = parts_without_lease(ranges, leases)",
        rule=9,
        tests=(_RANGES,),
    ),
    Mutant(
        name="a lease without bounds holds no keys",
        file="host/balancing/range_sync.py",
        before="    if not all(x.high for x in held):\n        return []\n",
        after="",
        rule=9,
        tests=(_RANGES,),
    ),
    Mutant(
        name="a web server takes as many connections as come",
        file="runtime/web_server.py",
        before="while len(self._waiting) + len(self._answering) >= self._most:",
        after="while False:",
        rule=0,
        tests=(_WEB, "tests/integration/test_web.py"),
    ),
    Mutant(
        name="one connection too many cuts off an answer",
        file="runtime/web_server.py",
        before="next(iter(self._waiting or self._answering))",
        after="next(iter(self._answering or self._waiting))",
        rule=0,
        tests=(_WEB,),
    ),
    Mutant(
        name="half a body counts as a request",
        file="runtime/web_server.py",
        before="        if request.content.is_eof():\n",
        after="        if True:\n",
        rule=0,
        tests=(_WEB,),
    ),
    Mutant(
        name="the rest of a request is waited for without end",
        file="runtime/web_server.py",
        before="        self._wait(transport, self._limits.request)\n",
        after="        self._wait(transport, 3600)\n",
        rule=0,
        tests=(_WEB,),
    ),
    Mutant(
        name="a connection that is kept is never closed",
        file="runtime/web_server.py",
        before="            self._wait(transport, self._limits.idle or self._limits.answer)\n",
        after="",
        rule=0,
        tests=(_WEB,),
    ),
)
