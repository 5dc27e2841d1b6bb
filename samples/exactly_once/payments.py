"""Balances and an outbox in SQLite, with the position of each range in the same transaction.

Adding is not repeatable, and need not be: a change is added once, also when a host is killed in
the middle of a call. What others are to hear of is in ``outbox``, once as well.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import TypedDict

from changefeed import Change
from changefeed.transactional.sqlite import in_sqlite

_TABLES = (
    "create table if not exists balances (account text primary key, cents integer not null)",
    "create table if not exists outbox (id integer primary key, message text not null)",
)
_ADD = (
    "insert into balances values (?, ?)"
    " on conflict (account) do update set cents = cents + excluded.cents"
)


class Payment(TypedDict):
    account: str
    cents: int


@in_sqlite("data/payments.db", name="payments")
def pay(connection: sqlite3.Connection, changes: Sequence[Change[Payment]]) -> None:
    for table in _TABLES:
        connection.execute(table)
    payments = [x.value() for x in changes]
    connection.executemany(_ADD, [(x["account"], x["cents"]) for x in payments])
    connection.executemany(
        "insert into outbox (message) values (?)",
        [(json.dumps({"paid": x["account"], "cents": x["cents"]}),) for x in payments],
    )
