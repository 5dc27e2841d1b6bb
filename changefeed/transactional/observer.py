"""The observer: calls a function with a connection, and commits its rows with the position.

A commit compares and sets: the row must have this owner's epoch, and the checkpoint that this
owner has last seen in it. So a former owner commits nothing, and neither does a commit that was
given up for lost and comes in late. Where the answer to a commit was lost, the row tells: if it
has the checkpoint of that commit, its changes are done.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from inspect import iscoroutinefunction
from typing import Any, Protocol

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason, Context
from changefeed.observers.typed import decoder_of
from changefeed.runtime.errors import Failure, UserError
from changefeed.transactional.rows import COLUMNS, Row, former_owner, opened

TABLE = "changefeed_positions"
"""The table of the rows, unless the user names another."""


class Transaction(Protocol):
    async def call(self, function: Callable[..., Any], changes: Sequence[Change]) -> None:
        """Call the user's function with the connection."""
        ...

    async def run(self, statement: str, *values: object) -> Sequence[Sequence[Any]]:
        """Return the rows. ``$1`` is the first value."""
        ...


class Database(Protocol):
    """Where the rows are. Whatever its client raises comes out."""

    async def open(self, table: str, create: str) -> None:
        """Connect, and create the table if it is absent. ``close`` follows, once for each."""
        ...

    def transaction(self, alone: str = "") -> AbstractAsyncContextManager[Transaction]:
        """Commit at the end of the block; undo all if it raises. With ``alone``, one at a time
        has that name.
        """
        ...

    async def close(self) -> None: ...


class TransactionalObserver:
    """Made for each range, as any observer, by ``in_postgres`` and ``in_sqlite``."""

    def __init__(
        self, function: Any, database: Callable[[], Database], name: str, table: str
    ) -> None:
        self._function = function
        self._decode = decoder_of(function, function.__qualname__)
        self._database = database()
        self._name = name
        self._table = table
        self._is_open = False
        self._row: Row | None = None
        """As last seen; ``None`` outside of any lease."""
        self._sent: dict[str, Sequence[Change]] = {}
        """The changes of commits that may have happened, by their checkpoints."""

    async def open(self, context: Context) -> str | None:
        if not self._is_open:  # after an attempt that failed it may be
            await self._database.open(self._table, _CREATE.format(self._table))
            self._is_open = True
        at = context.checkpoint_with(())
        if at is None:
            return None
        mine = Row(range=context.range, epoch=context.epoch, checkpoint=at)
        whole = context.range.whole
        async with self._database.transaction(alone=f"{self._table} {self._name} {whole}") as t:
            # An update, so that it waits for what others are about to commit.
            found = await t.run(_LOCK.format(self._table), self._name, whole)
            row, ended = opened(
                mine, [Row.of(x) for x in found], reset_epoch=context.reset_epoch
            )
            for x in ended:
                await t.run(_END.format(self._table), self._name, x.range.id)
            await t.run(_PUT.format(self._table), self._name, whole, *row.values)
        self._become(row)
        return row.checkpoint

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        left = await self._left_of(context, changes)
        if left:
            await self._commit(context, left, self._function)

    async def put_aside(self, context: Context, change: Change) -> None:
        if self._row is not None and await self._left_of(context, [change]):
            await self._commit(context, [change])

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        if self._is_open:
            await self._database.close()

    async def _commit(
        self, context: Context, changes: Sequence[Change], function: Any = None
    ) -> None:
        row, to = self._row, context.checkpoint_with(changes)
        async with self._database.transaction() as t:
            if function is not None:
                await t.call(function, self._decode(changes) if self._decode else changes)
            if row is None or to is None:
                return
            self._sent[to] = changes
            then = row.moved(to, changes)
            values = to, then.applied, self._name, row.range.id, row.epoch, row.checkpoint
            if not await t.run(_MOVE.format(self._table), *values):
                await self._look(t, row)
                raise Failure("an earlier commit, given up for lost, came in: once more")
        self._become(then)
        context.checkpoint(changes[-1])

    def _become(self, row: Row) -> None:
        """Go on from the row as it is by now: no commit is open."""
        self._row = row
        self._sent.clear()

    async def _left_of(self, context: Context, changes: Sequence[Change]) -> Sequence[Change]:
        """Return what is not applied of some changes, and acknowledge what is."""
        row = self._row
        if row is not None and self._sent:
            async with self._database.transaction() as t:
                at = await self._look(t, row)
            done = self._sent.get(at, ())
            if done:
                self._become(row.moved(at, done))
            for x in done:
                context.acknowledge(x)
            applied = {x.sequence for x in done}
            changes = [x for x in changes if x.sequence not in applied]
        if row is not None and any(x.sequence <= row.unclear for x in changes):
            raise Failure(
                f"range {row.range.id!r} was merged from ranges that stood at different places "
                f"after a crash: only your own tables say which of its changes up to sequence "
                f"{row.unclear} are applied. Put them to the dead letters, as by changefeed "
                f"dead-letters park, and compare them with your tables"
            )
        return changes

    async def _look(self, transaction: Transaction, row: Row) -> str:
        """Return the checkpoint that the row has by now.

        Raise ``Failure`` if it is not this owner's any more.
        """
        found = await transaction.run(_LOOK.format(self._table), self._name, row.range.id)
        for epoch, at in found:
            if epoch != row.epoch:
                raise former_owner(row, f"epoch {epoch}")
            if at == row.checkpoint or at in self._sent:
                return str(at)
        raise Failure(f"the row of {row.range.id!r} in {self._table} was changed by hand")


# Alike in PostgreSQL and SQLite. The name of the table is checked; nothing else is put in.
_CREATE = """create table if not exists {} (
    name text not null, range_id text not null, whole text not null,
    low text not null, high text not null, depth integer not null, cuts integer not null,
    epoch bigint not null, checkpoint text not null,
    applied bigint not null, unclear bigint not null,
    primary key (name, range_id))"""
_LOCK = f"update {{}} set epoch = epoch where name = $1 and whole = $2 returning {COLUMNS}"  # noqa: S608
_END = "update {} set epoch = 0 where name = $1 and range_id = $2"
_PUT = (
    f"insert into {{}} (name, whole, {COLUMNS})"  # noqa: S608
    " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    " on conflict (name, range_id) do update set "
    f"{', '.join(f'{x} = excluded.{x}' for x in COLUMNS.split(', '))}"
)
_MOVE = (
    "update {} set checkpoint = $1, applied = $2"
    " where name = $3 and range_id = $4 and epoch = $5 and checkpoint = $6 returning 1"
)
_LOOK = "select epoch, checkpoint from {} where name = $1 and range_id = $2"


def check_given(function: Any, table: str, *, wants_async: bool) -> None:
    """Raise ``UserError`` for a function of the other kind, and what names no table."""
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)?", table):
        raise UserError(f"{table!r} names no table: give a word, or schema.word")
    if iscoroutinefunction(function) is not wants_async:
        kind = "an 'async def'" if wants_async else "a plain 'def', which runs in a thread:"
        raise UserError(f"{function.__qualname__} must be {kind} (connection, changes)")
