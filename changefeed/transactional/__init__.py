"""Positions and rows in one transaction: exactly once, as seen in the database.

A function writes the rows of some changes, and the position is written with them::

    import asyncpg
    from changefeed import Change
    from changefeed.transactional.postgres import in_postgres

    @in_postgres("postgresql://me@host/shop", name="bookings")
    async def book(connection: asyncpg.Connection, changes: Sequence[Change]) -> None:
        rows = [(x.key, x.value()["cents"]) for x in changes]
        await connection.executemany("insert into bookings values ($1, $2)", rows)

``book`` is then an observer: ``--observer=shop:book``, or ``open_host(settings, book)``. In
SQLite it is ``changefeed.transactional.sqlite.in_sqlite``, and a plain function over a
``sqlite3.Connection``.

What holds, through kills, freezes and steals: a change is applied in a committed transaction
once, or is among the dead letters. The row of a range has the epoch of its last owner; a
transaction of another epoch is rolled back. When a range is opened, its row wins over the
checkpoint of its lease, unless a person has moved the lease since (``changefeed reset``).

Limits: what a function does outside of its transaction may happen again. A letter that is
replayed, and a task of Spark, get a transaction without a position. A reset counts once a host
has opened the range. Where Cosmos DB splits a range in the middle of a transaction of its own
that was applied in part before a crash, the rest of that transaction may come again.
"""
