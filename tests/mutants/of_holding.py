"""Breaks of what one host does with one lease: holding it, working under it, giving it up."""

from .mutant import Mutant

_HELD = "tests/unit/host/workers/test_owned_lease.py"
_WORKER = "tests/unit/host/workers/test_worker.py"
_HANDOFF = "tests/unit/host/balancing/test_handoff.py"
_STORIES = "tests/unit/host/test_fleet_stories.py"
_PROGRESS = "tests/unit/host/workers/test_acknowledgements.py"
_CHECKPOINTS = "tests/unit/host/workers/test_checkpointer.py"
_KEPT = "tests/unit/host/workers/test_kept_by_heartbeats.py"
_LOADS = "tests/unit/host/workers/test_loads_in_leases.py"
_EARLIER = "tests/unit/host/balancing/test_earlier_versions.py"
_HEARTBEATS = "tests/unit/host/balancing/test_heartbeats.py"

HOLDING = (
    Mutant(
        name="the fence counts from the answer of a renewal",
        file="host/workers/owned_lease.py",
        before="""\
        sent = self._clock()
        self.doubted = False
        await self._write(renewed, self._container.replace)
""",
        after="""\
        await self._write(renewed, self._container.replace)
        sent = self._clock()
        self.doubted = False
""",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="the fence counts from the answer of the acquisition",
        file="host/workers/owned_lease.py",
        before="    return OwnedLease(container, stored, sent=sent,",
        after="    sent = asyncio.get_running_loop().time()\n"
        "    return OwnedLease(container, stored, sent=sent,",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="no self-fence",
        file="host/workers/owned_lease.py",
        before="return not self.lost and self._clock() < self._fence_at",
        after="return not self.lost",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="no fence margin",
        file="host/workers/owned_lease.py",
        before="settings.expiration - settings.fence_margin",
        after="settings.expiration",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="the fence stands still while the machine is suspended",
        file="host/workers/owned_lease.py",
        before="        self._clock = clock\n",
        after="        self._clock = asyncio.get_running_loop().time\n",
        rule=5,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a checkpoint behind the fence",
        file="host/workers/owned_lease.py",
        before="""\
        self.check()
        await self._write(
            lambda lease: lease.advanced_to(continuation), self._container.checkpoint
""",
        after="""\
        await self._write(
            lambda lease: lease.advanced_to(continuation), self._container.checkpoint
""",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="a last checkpoint behind the fence",
        file="host/workers/owned_lease.py",
        before="""\
            self.check()
            await self._write(
                lambda lease: end(""",
        after="""\
            await self._write(
                lambda lease: end(""",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="a host does not know its own unanswered write",
        file="host/workers/owned_lease.py",
        before="self._unclear = wanted  # until the answer is here",
        after="self._unclear = None",
        rule=6,
        tests=(_HELD,),
    ),
    Mutant(
        name="a zombie takes over what another owns by now",
        file="host/workers/owned_lease.py",
        before="        if _holder(stored) not in ours:\n",
        after="        if stored is None:\n",
        rule=6,
        tests=(_HELD,),
    ),
    Mutant(
        name="another epoch under the same incarnation is taken for ours",
        file="host/workers/owned_lease.py",
        before="    return (lease.owner, lease.incarnation, lease.epoch)\n",
        after="    return (lease.owner, lease.incarnation, 0)\n",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="another incarnation of our name is taken for us",
        file="host/workers/owned_lease.py",
        before="    return (lease.owner, lease.incarnation, lease.epoch)\n",
        after="    return (lease.owner, None, lease.epoch)\n",
        rule=2,
        tests=(_HELD,),
    ),
    Mutant(
        name="a host that carries our write_id along is taken for us",
        file="host/workers/owned_lease.py",
        before="            ours.add(_holder(unclear))\n",
        after="            ours.add(_holder(stored))\n",
        rule=6,
        tests=(_HELD,),
    ),
    Mutant(
        name="a release that got through unanswered is taken for a loss",
        file="host/workers/owned_lease.py",
        before="            ours.add(_holder(unclear))\n",
        after="            pass\n",
        rule=6,
        tests=(_HELD,),
    ),
    Mutant(
        name="no lock around the writes of a lease",
        file="host/workers/owned_lease.py",
        before="        async with self._writing:\n            for _ in range(_TRIES):",
        after="        if True:\n            for _ in range(_TRIES):",
        rule=7,
        tests=(_HELD,),
    ),
    Mutant(
        name="a request found on the lease is overlooked",
        file="host/workers/owned_lease.py",
        before="if stored.next_owner is not None or stored.paused is not None:",
        after="if stored.paused is not None:",
        rule=4,
        tests=(_HELD,),
    ),
    Mutant(
        name="the lease is released before the drain",
        file="host/workers/worker.py",
        before="                self.stop(CloseReason.HANDED_OVER)\n",
        after="                self.stop(CloseReason.HANDED_OVER)\n"
        "                await self._owned.give_up(self._handed_over, None)\n",
        rule=4,
        tests=(_HANDOFF,),
    ),
    Mutant(
        name="the observer is not waited for",
        file="host/workers/delivery.py",
        before="await observer.process(self._context, changes)",
        after="asyncio.ensure_future(observer.process(self._context, changes))",
        rule=11,
        tests=(_STORIES,),
    ),
    Mutant(
        name="cancelled is taken for done",
        file="host/workers/delivery.py",
        before="""\
                await observer.process(self._context, changes)
""",
        after="""\
                try:
                    await observer.process(self._context, changes)
                finally:
                    self._checkpoints.done(page.continuation, changes=0)
                    self._checkpoints.advance()
""",
        rule=11,
        tests=(_STORIES,),
    ),
    Mutant(
        name="what is asked for goes on being read",
        file="host/workers/delivery.py",
        before="        if self._pages is not None:\n            self._pages.stop()\n",
        after="",
        rule=4,
        tests=(_HANDOFF,),
    ),
    Mutant(
        name="a renewal that is given no time asks again and again",
        file="host/workers/renewer.py",
        before="max(self._owned.time_left, _SHORTEST_WAIT)",
        after="self._owned.time_left",
        rule=0,
        tests=("tests/unit/host/workers/test_renewer.py",),
    ),
    Mutant(
        name="a renewer that gives up in silence",
        file="host/workers/renewer.py",
        before="            self._owned.check()  # heartbeats",
        after="            await asyncio.Event().wait()  # heartbeats",
        rule=5,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a handoff may take for ever",
        file="host/workers/worker.py",
        before="None if stopping else self._settings.leases.max_handoff_time",
        after="None if stopping else 1e9",
        rule=4,
        tests=(_HANDOFF,),
    ),
    Mutant(
        name="a range ends without leases for its successors",
        file="host/workers/delivery.py",
        before="                await self._prepare_successors(page)\n",
        after="",
        rule=9,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a range ends before all is acknowledged",
        file="host/workers/delivery.py",
        before="""\
                await self._until_acknowledged()
                if self._acknowledgements.unacknowledged:
                    break""",
        after="""\
                if self._acknowledgements.unacknowledged < 0:
                    break""",
        rule=9,
        tests=(_WORKER,),
    ),
    Mutant(
        name="the observer is called again under a lease that is over",
        file="host/workers/lease_gate.py",
        before="        if not self._owned.may_act:\n            raise LeaseFenced",
        after="        if self._owned.lost:\n            raise LeaseFenced",
        rule=5,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a lease is handed over to the dead",
        file="host/workers/worker.py",
        before="if lease.next_owner is not None and self._environment.is_alive("
        "lease.next_owner):\n            return",
        after="if lease.next_owner is not None:\n            return",
        rule=4,
        tests=(_WORKER,),
    ),
    Mutant(
        name="no room is waited for",
        file="host/workers/delivery.py",
        before="and self._acknowledgements.unacknowledged + changes > limit",
        after="and self._acknowledgements.unacknowledged > 10 * limit",
        rule=8,
        tests=(_WORKER,),
    ),
    Mutant(
        name="batches run ahead of their checkpoints",
        file="host/workers/delivery.py",
        before="await self._checkpoints.room_for(changes + unacknowledged, limit=limit)",
        after="del unacknowledged",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="what is in hand takes no room from what is done and not stored",
        file="host/workers/delivery.py",
        before="await self._checkpoints.room_for(changes + unacknowledged, limit=limit)",
        after="await self._checkpoints.room_for(changes, limit=limit)",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="what an observer checkpoints takes no room until it is stored",
        file="host/workers/context.py",
        before="changes=before - left\n",
        after="changes=0 * before\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="what policy has put off is not written to make room",
        file="host/workers/checkpointer.py",
        before="            self.advance()\n            if self._written == self._said:\n",
        after="            if self._written == self._said:\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a batch may be larger than what a crash may repeat",
        file="host/workers/delivery.py",
        before="        size = self._settings.observer.max_unacknowledged\n",
        after="        size = len(page.changes)\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="the last checkpoint is left behind",
        file="host/workers/worker.py",
        before="        last = await self._checkpoints.stop()\n",
        after="        await self._checkpoints.stop()\n        last = None\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="an empty page passes over what is not acknowledged",
        file="host/workers/delivery.py",
        before="        if not self._acknowledgements.unacknowledged:\n"
        "            self._checkpoints.done(page.continuation, changes=0)\n",
        after="        self._checkpoints.done(page.continuation, changes=0)\n"
        "        if not self._acknowledgements.unacknowledged:\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a checkpoint under way counts for a later one",
        file="host/workers/checkpointer.py",
        before="self._written = number",
        after="self._written = self._said",
        rule=12,
        tests=(_CHECKPOINTS,),
    ),
    Mutant(
        name="a count that forgets the batches before",
        file="host/workers/checkpointer.py",
        before="        self._changes += changes\n        mode =",
        after="        self._changes = changes\n        mode =",
        rule=12,
        tests=(_CHECKPOINTS,),
    ),
    Mutant(
        name="an acknowledgement counts for all before it",
        file="host/workers/acknowledgements.py",
        before="""\
        self._done.add(change.sequence)
        return self._follow()
""",
        after="""\
        self._done.add(change.sequence)
        self._follow()
        return change
""",
        rule=12,
        tests=(_HANDOFF,),
    ),
    Mutant(
        name="a closed observer says what is done",
        file="host/workers/context.py",
        before="        if self._closed:\n",
        after="        if not self._loop:\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="what is delivered again is in hand twice",
        file="host/workers/acknowledgements.py",
        before="if changes[0].sequence <= self._last:",
        after="if changes[0].sequence < 0:",
        rule=12,
        tests=(_PROGRESS,),
    ),
    Mutant(
        name="reading ahead without a limit",
        file="host/workers/prefetch.py",
        before="while len(self._pages) >= self._settings.read_ahead and not self._stopped:",
        after="while len(self._pages) >= 1_000_000 and not self._stopped:",
        rule=4,
        tests=("tests/unit/host/workers/test_prefetch.py",),
    ),
    Mutant(
        name="an idle owner does not notice that it drains",
        file="host/workers/prefetch.py",
        before="        self._pages.clear()\n        self._moved.set()\n",
        after="        self._pages.clear()\n",
        rule=4,
        tests=("tests/unit/host/workers/test_prefetch.py",),
    ),
    Mutant(
        name="a lease that is acquired during a stop is not drained",
        file="host/workers/pool.py",
        before="if self._draining is not None:  # acquired while the host stops",
        after="if False:",
        rule=11,
        tests=("tests/unit/host/workers/test_pool.py",),
    ),
    Mutant(
        name="a worker that fails, fails in silence",
        file="host/workers/pool.py",
        before="            self._failed(error)\n",
        after="            del error\n",
        rule=10,
        tests=("tests/unit/host/workers/test_pool.py",),
    ),
    Mutant(
        name="what was never delivered can be checkpointed",
        file="host/workers/context.py",
        before=" or not self._acknowledgements.was_delivered(change)",
        after="",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="threads write into the event loop",
        file="host/workers/context.py",
        before="if threading.get_ident() == self._thread:",
        after="if self._thread:",
        rule=8,
        tests=("tests/unit/host/workers/test_worker_threads.py",),
    ),
    Mutant(
        name="the epoch of another owner as a fencing token",
        file="host/workers/context.py",
        before="        return self._lease.epoch\n",
        after="        return self._lease.epoch - 1\n",
        rule=5,
        tests=(_WORKER,),
    ),
    Mutant(
        name="heartbeats count on although listings fail",
        file="host/workers/owned_lease.py",
        before="        kept_from = min(self._beat_at, self._seen_at)\n",
        after="        kept_from = self._beat_at\n",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="listings keep a lease without heartbeats",
        file="host/workers/owned_lease.py",
        before="        kept_from = min(self._beat_at, self._seen_at)\n",
        after="        kept_from = self._seen_at\n",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="a heartbeat lifts a fence that has passed",
        file="host/workers/owned_lease.py",
        before="        if self.may_act:\n            self._beat_at = sent\n",
        after="        if not self.lost:\n            self._beat_at = sent\n",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="an owner does not see in its listing that its lease was taken",
        file="host/workers/owned_lease.py",
        before="        elif _holder(found) != _holder(self._lease):\n",
        after="        elif found.epoch < 0:\n",
        rule=5,
        tests=(_KEPT, _HEARTBEATS),
    ),
    Mutant(
        name="an old listing takes a lease from its owner",
        file="host/workers/owned_lease.py",
        before="        if found is None or found.epoch < self._lease.epoch:\n",
        after="        if found is None:\n",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="an old listing counts as a look at the lease",
        file="host/workers/owned_lease.py",
        before="        elif found.renewals >= self._lease.renewals:",
        after="        elif found.renewals >= 0:",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="a host loses a lease to its own release",
        file="host/workers/owned_lease.py",
        before="        if self.lost or self._giving_up:\n",
        after="        if self.lost:\n",
        rule=4,
        tests=(_KEPT,),
    ),
    Mutant(
        name="a lost lease is delivered on until its next write",
        file="host/workers/worker.py",
        before="            if self._owned.lost:\n                self._owned.check()\n",
        after="",
        rule=5,
        tests=(_HEARTBEATS,),
    ),
    Mutant(
        name="nothing renews a lease whose heartbeats fail",
        file="host/workers/renewer.py",
        before="        return self._owned.time_left - self._reserve\n",
        after="        return self._interval\n",
        rule=5,
        tests=(_HEARTBEATS,),
    ),
    Mutant(
        name="nothing watches for leases that heartbeats keep no more",
        file="host/workers/pool.py",
        before="                if due_in <= 0:\n"
        "                    worker.look_at_renewal()\n",
        after="",
        rule=5,
        tests=(_HEARTBEATS,),
    ),
    Mutant(
        name="each lease is renewed though heartbeats keep it",
        file="host/workers/renewer.py",
        before="        if not self._renew_each():\n",
        after="        if self._reserve < 0:\n",
        rule=0,
        tests=(_HEARTBEATS,),
    ),
    Mutant(
        name="a load that has changed waits for a renewal that never comes",
        file="host/workers/worker.py",
        before="        if self._owned.doubted or self._renewer.outdated:\n",
        after="        if self._owned.doubted:\n",
        rule=0,
        tests=(_LOADS,),
    ),
    Mutant(
        name="by load, a lease that was moved says so for ever",
        file="host/workers/renewer.py",
        before="            return (said.load, said.moved) != (now.load, now.moved)\n",
        after="            return said.load != now.load\n",
        rule=0,
        tests=(_LOADS,),
    ),
    Mutant(
        name="each idle lease is written to say that it costs nothing",
        file="host/workers/renewer.py",
        before="        return (said.load or 0.0) != (now.load or 0.0)\n",
        after="        return said.load != now.load\n",
        rule=0,
        tests=(_LOADS,),
    ),
    Mutant(
        name="a listing lifts a fence that has passed",
        file="host/workers/owned_lease.py",
        before="            if self.may_act:\n                self._extend()\n",
        after="            self._extend()\n",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="a lease that is found deleted by a look at an unclear write may be acted on",
        file="host/workers/owned_lease.py",
        before="            self.lost = True\n            raise LeaseGone(self._lease,",
        after="            raise LeaseGone(self._lease,",
        rule=5,
        tests=(_HELD,),
    ),
    Mutant(
        name="a renewal counts no more once heartbeats do not",
        file="host/workers/owned_lease.py",
        before="        self._written_at = sent\n\n    async",
        after="\n    async",
        rule=5,
        tests=(_KEPT,),
    ),
    Mutant(
        name="to clear a request moves the fence",
        file="host/workers/owned_lease.py",
        before="lease.next_owner == asker else lease,\n"
        "            self._container.replace,\n"
        "        )\n",
        after="lease.next_owner == asker else lease,\n"
        "            self._container.replace,\n"
        "        )\n"
        "        self._fence_at = self._clock() + self._held_for\n",
        rule=5,
        tests=(_HELD,),
    ),
)
