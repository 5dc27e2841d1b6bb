"""Bookings in a database: each change counts exactly once, though it may come twice.

A plain function: it may block, so the host calls it in a thread. It makes two promises
that make "at least once" into "exactly once" for the balances:

* a booking has the range and the sequence of its change for a primary key, so what is
  delivered again is ignored;
* the epoch of the lease is a fencing token: a former owner, frozen in the middle of a call
  while another host took over, finds a later epoch in ``fences`` and writes nothing.

Both stand in one transaction with the bookings. The database is ``data/ledger.db``, or
what the environment names in ``LEDGER``.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from changefeed import Change, Context

_TABLES = """
create table if not exists bookings (
    range text, sequence integer, account text not null, cents integer not null,
    primary key (range, sequence)
) without rowid;
create table if not exists fences (range text primary key, epoch integer not null);
create view if not exists balances as
    select account, sum(cents) as cents from bookings group by account;
"""


class FormerOwner(Exception):
    """A later epoch of the range has begun: this process is not its owner any more."""


def book(context: Context, changes: Sequence[Change]) -> None:
    with _ledger() as ledger:
        _fence(ledger, context)
        rows = [(x.range_id, x.sequence, x.key, x.value()["cents"]) for x in changes]
        ledger.executemany("insert or ignore into bookings values (?, ?, ?, ?)", rows)


def _fence(ledger: sqlite3.Connection, context: Context) -> None:
    """Raise ``FormerOwner`` if the range has been booked under a later epoch."""
    mine = (context.range.id, context.epoch)
    ledger.execute(
        "insert into fences values (?, ?) "
        "on conflict (range) do update set epoch = max(epoch, excluded.epoch)",
        mine,
    )
    latest = ledger.execute("select epoch from fences where range = ?", mine[:1]).fetchone()
    if latest != mine[1:]:
        raise FormerOwner(f"range {mine[0]} is booked under epoch {latest[0]} by now")


@contextmanager
def _ledger() -> Iterator[sqlite3.Connection]:
    """Open the database for one transaction, which is taken back if anything is raised."""
    path = Path(os.environ.get("LEDGER", "data/ledger.db"))
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path, timeout=30)) as ledger:
        ledger.executescript(_TABLES)
        ledger.execute("begin immediate")
        with ledger:
            yield ledger
