"""Breaks of leases and of the places where they are kept."""

from .mutant import Mutant

_TIMEOUTS = "tests/unit/leases/test_timeouts.py"
_CONTRACT = "tests/contract/test_lease_containers.py"
_SEPARATE = "tests/unit/leases/test_separate_stores.py"
_CHECKPOINTS = "tests/contract/test_checkpoint_stores.py"
_DELETED = "test_a_checkpoint_is_deleted_in_the_version_that_was_read"
_LOST = "tests/unit/host/test_lost_checkpoints.py"
_SQLITE = "tests/unit/leases/test_sqlite.py"
_COVERAGE = "tests/unit/leases/test_coverage.py"
_EXPIRY = "tests/unit/leases/test_expiry.py"
_LIFE = "tests/unit/leases/test_life.py"

LEASES = (
    Mutant(
        name="leases that overlap pass a check",
        file="leases/coverage.py",
        before="            if b.range.low >= a.range.high:\n                break\n",
        after="            if b.range.low <= a.range.high:\n                break\n",
        rule=9,
        tests=(_COVERAGE,),
    ),
    Mutant(
        name="a lease that waits for its parent counts as an overlap",
        file="leases/coverage.py",
        before="    before = {x.range_id: _ancestors(x.range_id, parents) for x in living}",
        after="    before = {x.range_id: _ancestors(x.range_id, {}) for x in living}",
        rule=9,
        tests=(_COVERAGE,),
    ),
    Mutant(
        name="keys between two leases pass a check",
        file="leases/coverage.py",
        before="        if x.low > low:\n            gaps.append",
        after="        if x.low < low:\n            gaps.append",
        rule=12,
        tests=(_COVERAGE,),
    ),
    Mutant(
        name="expiry counts to the answer",
        file="leases/expiry.py",
        before="if at.asked - since >= self._wait_for(key)",
        after="if at.answered - since >= self._wait_for(key)",
        rule=1,
        tests=(_EXPIRY,),
    ),
    Mutant(
        name="expiry counts from the question",
        file="leases/expiry.py",
        before="sign, since = thing.sign_of_life, at.answered",
        after="sign, since = thing.sign_of_life, at.asked",
        rule=1,
        tests=(_EXPIRY,),
    ),
    Mutant(
        name="a clock error takes a lease from the living",
        file="leases/expiry.py",
        before="self._longest_still = expiration + max_clock_skew",
        after="self._longest_still = expiration",
        rule=1,
        tests=(_EXPIRY,),
    ),
    Mutant(
        name="a wrong clock takes a lease that was never watched",
        file="leases/expiry.py",
        before="min(expiration, 2 * renew_interval)",
        after="0.0",
        rule=1,
        tests=(_EXPIRY, "tests/unit/host/balancing/test_clocks.py"),
    ),
    Mutant(
        name="a request keeps a dead owner alive",
        file="leases/lease.py",
        before="    def sign_of_life(self) -> tuple[int, int]:\n"
        '        """What moves only when an owner writes: a request of another host does '
        'not."""\n'
        "        return (self.epoch, self.renewals)",
        after="    def sign_of_life(self) -> tuple[int, int, Version]:\n"
        "        return (self.epoch, self.renewals, self.version)",
        rule=1,
        tests=(_EXPIRY,),
    ),
    Mutant(
        name="a new owner without a new epoch",
        file="leases/lease.py",
        before="            incarnation=incarnation,\n            epoch=self.epoch + 1,\n",
        after="            incarnation=incarnation,\n",
        rule=5,
        tests=("tests/unit/host/test_fleet_stories.py", _CONTRACT),
    ),
    Mutant(
        name="no version check",
        file="leases/tables.py",
        before="    if stored.version != lease.version:\n",
        after="    if stored.version < 'x' > lease.version:\n",
        rule=3,
        tests=(_CONTRACT,),
    ),
    Mutant(
        name="no epoch on a checkpoint",
        file="leases/tables.py",
        before="    if present.epoch != lease.epoch:\n",
        after="    if present.epoch < 0:\n",
        rule=5,
        tests=(f"{_CONTRACT}::test_nor_can_one_that_has_read_the_new_version",),
    ),
    Mutant(
        name="a checkpoint writes back the ownership it knows",
        file="leases/tables.py",
        before="(\n        present,\n        continuation=require_continuation(lease),",
        after="(\n        lease,\n        continuation=require_continuation(lease),",
        rule=7,
        tests=(f"{_CONTRACT}::test_a_checkpoint_is_all_that_a_checkpoint_writes",),
    ),
    Mutant(
        name="a renewal forgets the checkpoint",
        file="leases/tables.py",
        before="    return replace(lease, continuation=present.continuation)\n",
        after="    return replace(lease, continuation='')\n",
        rule=12,
        tests=(_CONTRACT,),
    ),
    Mutant(
        name="an acquisition writes an old checkpoint back",
        file="leases/tables.py",
        before="        return await self._write(lease, lambda stored: replaced(stored, bare))",
        after="        return await self._write(lease, lambda stored: replaced(stored, lease))",
        rule=12,
        tests=(
            f"{_CONTRACT}::test_a_continuation_that_is_carried_along_is_not_written_by_acquiring",
        ),
    ),
    Mutant(
        name="a member record that anyone may overwrite",
        file="leases/tables.py",
        before="if stored is not None and stored.version != member.version:\n"
        "        raise MemberConflict",
        after="if stored is not None and not stored.version:\n        raise MemberConflict",
        rule=2,
        tests=(f"{_CONTRACT}::test_of_two_incarnations_under_one_name_the_second_is_told",),
    ),
    Mutant(
        name="an older epoch overwrites a claimed checkpoint",
        file="leases/tables.py",
        before="    if stored.epoch > checkpoint.epoch:\n",
        after="    if stored.epoch < 0:\n",
        rule=5,
        tests=(
            f"{_CONTRACT}::test_nor_can_one_that_has_read_the_new_version",
            _SEPARATE,
        ),
    ),
    Mutant(
        name="an acquisition that does not claim the checkpoint",
        file="leases/separate_stores.py",
        before="                checkpoint = await self._checkpoints.write(claim)\n"
        "            except",
        after="                checkpoint = claim\n            except",
        rule=5,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="ownership is passed on before its checkpoint is written",
        file="leases/separate_stores.py",
        before="""\
        checkpoint = await self._write_checkpoint(lease, seen, epoch=epoch)
        return _whole(await self._replace_ownership(lease), checkpoint)
""",
        after="""\
        owned = await self._replace_ownership(lease)
        checkpoint = await self._write_checkpoint(lease, seen, epoch=epoch)
        return _whole(owned, checkpoint)
""",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="a claim of an epoch that is over",
        file="leases/separate_stores.py",
        before="            if seen.claimed > lease.epoch:\n",
        after="            if seen.claimed < 0:\n",
        rule=5,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="to hand over shuts out the present owner",
        file="leases/separate_stores.py",
        before="        epoch = min(lease.epoch, seen.claimed)\n",
        after="        epoch = lease.epoch\n",
        rule=6,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="the checkpoint is read before its owner",
        file="leases/separate_stores.py",
        before="""\
            owned = await self._ownership.read(range_id)
            if owned is None:
                return None
            checkpoint = await self._checkpoints.read(range_id)
""",
        after="""\
            checkpoint = await self._checkpoints.read(range_id)
            owned = await self._ownership.read(range_id)
            if owned is None:
                return None
""",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="a wiped checkpoint is made anew under a lease in use",
        file="leases/separate_stores.py",
        before="            if owned is not None:\n                return _listed(owned)\n",
        after="",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="a checkpoint that was left behind is adopted without a write",
        file="leases/separate_stores.py",
        before="        return await self._checkpoints.write(replace(found,",
        after="        return (replace(found,",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="who deletes a lease looks for its checkpoint when it may be another's",
        file="leases/separate_stores.py",
        before="""\
        checkpoint = await self._checkpoints.read(lease.range_id)
        with _reraise_for(lease):
            await self._ownership.delete(replace(lease, version=_seen(lease).ownership))
""",
        after="""\
        with _reraise_for(lease):
            await self._ownership.delete(replace(lease, version=_seen(lease).ownership))
        checkpoint = await self._checkpoints.read(lease.range_id)
""",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="a late delete takes a checkpoint that was written since",
        file="leases/tables.py",
        before="    unchanged = stored is not None and stored.version == checkpoint.version\n",
        after="    unchanged = stored is not None\n",
        rule=3,
        tests=(f"{_CHECKPOINTS}::{_DELETED}[memory]",),
    ),
    Mutant(
        name="a late delete takes whatever checkpoint a store has by now",
        file="leases/conditional.py",
        before='        _, _, version = checkpoint.version.partition(" ")\n',
        after="        stored = await self._checkpoints.get(checkpoint.range_id)\n"
        "        version = stored.version if stored is not None else ''\n",
        rule=3,
        tests=(f"{_CHECKPOINTS}::{_DELETED}[redis]",),
    ),
    Mutant(
        name="who is to read a range makes up where it goes on",
        file="leases/separate_stores.py",
        before="if lease.owner is not None or lease.continuation is None:",
        after="if lease.continuation is None:",
        rule=12,
        tests=(_SEPARATE,),
    ),
    Mutant(
        name="one lost checkpoint ends every host",
        file="host/balancing/lost_checkpoints.py",
        before="            if not await self._any_has_one(besides=range_id):\n",
        after="            if True:\n",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="another checkpoint store pauses the whole fleet",
        file="host/balancing/lost_checkpoints.py",
        before="            if not await self._any_has_one(besides=range_id):\n",
        after="            if False:\n",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="some checkpoints that are lost make another store",
        file="host/balancing/lost_checkpoints.py",
        before="range(0, len(others), _AT_ONCE)",
        after="range(0, 1, _AT_ONCE)",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a checkpoint that a replica has not got yet is lost",
        file="host/balancing/lost_checkpoints.py",
        before=" < self._patience:",
        after=" < 0:",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a checkpoint that is back is lost all the same",
        file="host/balancing/lost_checkpoints.py",
        before="        return lease is not None and lease.continuation is None\n",
        after="        return lease is not None\n",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="an owner whose checkpoint is lost ends its host",
        file="host/workers/owned_lease.py",
        before="            self.lose(str(missing))\n",
        after="            raise missing\n",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a successor without a checkpoint ends the host that finds it",
        file="host/workers/successors.py",
        before="partial(look_up, self.container, range_id)",
        after="partial(self.container.read, range_id)",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a lost checkpoint cannot be reset",
        file="leases/operations/release.py",
        before="        vacant = vacant.advanced_to(lost)\n",
        after="        pass\n",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a range whose checkpoint is lost cannot be released",
        file="leases/operations/release.py",
        before="            with suppress(CheckpointMissing):",
        after="            with suppress(ZeroDivisionError):",
        rule=12,
        tests=(_LOST,),
    ),
    Mutant(
        name="a stale etag: the version of a listing is not carried",
        file="leases/separate_stores.py",
        before="    return replace(owned, version=_version(_Seen(ownership=owned.version)))",
        after="    return replace(owned, version=_version(_Seen(ownership=Version('1'))))",
        rule=3,
        tests=(_CONTRACT,),
    ),
    Mutant(
        name="transactions that begin as readers",
        file="leases/sqlite/file.py",
        before='connection.execute("begin immediate")',
        after='connection.execute("begin")',
        rule=3,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a failed transaction stays open",
        file="leases/sqlite/file.py",
        before='            connection.execute("rollback")\n',
        after="            pass\n",
        rule=6,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a change that is refused is written with the others",
        file="leases/sqlite/file.py",
        before='        connection.execute("rollback to one")\n',
        after="",
        rule=6,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="closing forgets the changes that wait",
        file="leases/sqlite/file.py",
        before="        while self._writing is not None:\n",
        after="        while False:\n",
        rule=6,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="versions that are used again",
        file="leases/sqlite/schema.py",
        before="(version integer primary key autoincrement, {columns})",
        after="(version integer primary key, {columns})",
        rule=3,
        tests=(f"{_CONTRACT}::test_a_lease_that_was_recreated_is_another",),
    ),
    Mutant(
        name="a full disk is taken for a refusal",
        file="runtime/file_errors.py",
        before="    sqlite3.SQLITE_FULL: _NO_ROOM,\n",
        after="",
        rule=6,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a lease file that was replaced goes unnoticed",
        file="runtime/open_database.py",
        before="            if found != place:\n",
        after="            if found is None:\n",
        rule=3,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a lease file that was deleted goes unnoticed by readers",
        file="leases/sqlite/file.py",
        before="            self._refuse_another_file()\n            return work(",
        after="            return work(",
        rule=3,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="an error of the disk ends hosts",
        file="runtime/file_errors.py",
        before="    sqlite3.SQLITE_IOERR: ",
        after="    -1: ",
        rule=10,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="no file handle is taken for a missing right",
        file="runtime/file_errors.py",
        before="if code == sqlite3.SQLITE_CANTOPEN and out_of_handles():",
        after="if False:",
        rule=10,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="a lease disk that was full stays full",
        file="leases/sqlite/file.py",
        before="self._was_full = self._was_full or sqlite_code",
        after="_ = self._was_full or sqlite_code",
        rule=10,
        tests=(_SQLITE,),
    ),
    Mutant(
        name="what a part goes on in after a split is refused",
        file="leases/cosmos/documents.py",
        before="    return one.low < part.low or part.high < one.high\n",
        after="    return one.id != part.id\n",
        rule=9,
        tests=("tests/unit/leases/cosmos/test_documents.py",),
    ),
    Mutant(
        name="the whole of parts is read beside them",
        file="leases/cosmos/documents.py",
        before="    return one.low < part.low or part.high < one.high\n",
        after="    return one.low < part.low and part.high < one.high\n",
        rule=9,
        tests=("tests/unit/leases/cosmos/test_documents.py",),
    ),
    Mutant(
        name="what a range goes on in without a lease is not behind it",
        file="leases/unread.py",
        before="for x in ended.successors]",
        after="for x in ended.successors[:0]]",
        rule=9,
        tests=("tests/unit/leases/test_unread.py",),
    ),
    Mutant(
        name="what two ranges go on in counts twice",
        file="leases/unread.py",
        before="                self._counted.add(name)\n",
        after="",
        rule=9,
        tests=("tests/unit/leases/test_unread.py",),
    ),
    Mutant(
        name="a stopped fleet with fresh stamps is taken for a living one",
        file="leases/cosmos/foreign.py",
        before="if x.owner and x.stamp != stamps.get(x.range.id)}",
        after="if x.owner}",
        rule=1,
        tests=("tests/unit/leases/cosmos/test_foreign.py",),
    ),
    Mutant(
        name="leases about another feed are used",
        file="leases/feed_identity.py",
        before="    if kept is not None and kept != identity and await container.list():",
        after="    if kept is None and await container.list():",
        rule=12,
        tests=("tests/unit/leases/test_feed_identity.py",),
    ),
    Mutant(
        name="a refused feed is written down nevertheless",
        file="leases/feed_identity.py",
        before="    kept = await container.feed_identity()\n",
        after="    kept = await container.feed_identity()\n"
        "    await container.keep_feed_identity(identity)\n",
        rule=12,
        tests=("tests/unit/leases/test_feed_identity.py",),
    ),
    Mutant(
        name="a Redis that may throw leases away is used",
        file="leases/redis/connection.py",
        before='    return policy.startswith("allkeys-")',
        after='    return policy.startswith("volatile-")',
        rule=12,
        tests=("tests/unit/leases/redis/test_address.py",),
    ),
    Mutant(
        name="what an Event Hubs processor wrote begins no epoch",
        file="leases/blob/metadata.py",
        before="            epoch=int(found.written),\n            stamp",
        after="            epoch=0,\n            stamp",
        rule=1,
        tests=("tests/unit/leases/blob/test_metadata.py",),
    ),
    Mutant(
        name="a processor of another kind is judged by its stamp and our renewals",
        file="leases/life.py",
        before="        if owner is None:\n",
        after="        if owner is None and lease.incarnation is not None:\n",
        rule=1,
        tests=("tests/unit/leases/test_life.py",),
    ),
    Mutant(
        name="another start of a host keeps the leases of the one before it",
        file="leases/life.py",
        before="        if lease.owner is not None and lease.incarnation is not None:\n"
        "            owner = self._seen.get((lease.owner, lease.incarnation))\n",
        after="        found = [x for x in self._seen.values() if x.name == lease.owner]\n"
        "        owner = found[-1] if found else None\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="heartbeats keep the leases of hosts that renew each",
        file="leases/life.py",
        before='    return not is_placeholder(member) and renewal_of(member) == "host"\n',
        after="    return not is_placeholder(member)\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="a heartbeat keeps no lease",
        file="leases/life.py",
        before="            beats = owner.heartbeats\n",
        after="            beats = 0\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="an old stamp of a lease makes an owner dead that beats",
        file="leases/life.py",
        before="            stamps.append(owner.stamp)\n",
        after="",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="an owner whose record is out of sight is old by its lease",
        file="leases/life.py",
        before="            stamps.append(None)\n",
        after="            pass\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="an owner that has beaten since is taken from",
        file="leases/life.py",
        before="    await container.put_member(record)\n",
        after="    await container.remove_member(record)\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="an owner without a record is not kept out",
        file="leases/life.py",
        before="    if record is None:\n",
        after="    if record is None:\n        return\n    if record.heartbeats < _NEVER:\n",
        rule=1,
        tests=(_LIFE,),
    ),
    Mutant(
        name="who gave up waiting takes the answers of all that share its transaction",
        file="leases/sqlite/file.py",
        before="            if one.answer.cancelled():\n                continue\n",
        after="",
        rule=0,
        tests=("tests/unit/leases/test_sqlite.py",),
    ),
    Mutant(
        name="an older record of another start stands for no heartbeat",
        file="leases/life.py",
        before="    elif record.incarnation == lease.incarnation and not (",
        after="    elif not (",
        rule=5,
        tests=("tests/unit/leases/test_life.py",),
    ),
    Mutant(
        name="a listing of what has changed may take for ever",
        file="leases/timeouts.py",
        before='await self._bounded("list", self._changes.changes_since(token))',
        after="await self._changes.changes_since(token)",
        rule=5,
        tests=(_TIMEOUTS,),
    ),
    Mutant(
        name="a checkpoint may take for ever",
        file="leases/timeouts.py",
        before='await self._soon("checkpoint", self._container.checkpoint(lease))',
        after="await self._container.checkpoint(lease)",
        rule=5,
        tests=(_TIMEOUTS,),
    ),
    Mutant(
        name="a look at one lease may take for ever",
        file="leases/timeouts.py",
        before='await self._soon("read", self._container.read(range_id))',
        after="await self._container.read(range_id)",
        rule=5,
        tests=(_TIMEOUTS,),
    ),
    Mutant(
        name="a lease does not say under which epoch its checkpoint was written",
        file="leases/lease.py",
        before="continuation=continuation, checkpoint_epoch=self.epoch)",
        after="continuation=continuation)",
        rule=9,
        tests=("tests/unit/leases/test_lease.py",),
    ),
    Mutant(
        name="a range that has just ended is paused",
        file="leases/operations/update.py",
        before="    if stored is None or stored.ended:\n",
        after="    if stored is None:\n",
        rule=9,
        tests=("tests/unit/leases/operations/test_pause.py",),
    ),
)
