"""What is said of the addresses and stores of leases."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from changefeed.leases.addresses import open_container
from changefeed.stores.postgres.address import read_address
from tests.support import make
from tests.support.sqlite_leases import SqliteLeases

from .table import Table

LEASES: Final = Table("Leases")

LEASES.each(
    open_container,
    {
        "an address with a scheme of no store": "nats://host",
        "a path for an address": "leases.db",
        "a file without a path": "sqlite:",
        "no address": "",
    },
)
LEASES.each(
    read_address,
    {
        "PostgreSQL without a host": "db",
        "PostgreSQL with an empty fleet": "//h/db?fleet=",
        "PostgreSQL with an empty schema": "//h/db?schema=",
    },
)


async def _list(path: Path) -> object:
    async with SqliteLeases(path) as leases:
        return await leases.list()


async def _list_after(path: Path, *statements: str) -> object:
    """List the one lease that there is, after a person has changed the file."""
    async with SqliteLeases(path) as leases:
        await leases.create(make.lease(at="0"))
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return await _list(path)


@LEASES.says("SQLite in a directory that is not there")
async def _(folder: Path) -> object:
    return await _list(folder / "nowhere" / "leases.db")


@LEASES.says("SQLite in a directory")
async def _(folder: Path) -> object:
    return await _list(folder)


@LEASES.says("SQLite in a file that is no database")
async def _(folder: Path) -> object:
    path = folder / "notes.txt"
    path.write_text("remember the milk\n" * 100)
    return await _list(path)


@LEASES.says("SQLite in the database of another program")
async def _(folder: Path) -> object:
    with closing(sqlite3.connect(folder / "theirs.db")) as connection:
        connection.execute("create table customers (name text)")
    return await _list(folder / "theirs.db")


@LEASES.says("SQLite of an older version")
async def _(folder: Path) -> object:
    return await _list_after(folder / "leases.db", "pragma user_version = 1")


@LEASES.says("SQLite of a newer version")
async def _(folder: Path) -> object:
    return await _list_after(folder / "leases.db", "pragma user_version = 4")


@LEASES.says("a row in SQLite that was damaged")
async def _(folder: Path) -> object:
    damage = "update records set body = json_set(body, '$.owner', 7)"
    return await _list_after(folder / "leases.db", damage)


@LEASES.says("SQLite that is not open")
async def _(folder: Path) -> object:
    return await SqliteLeases(folder / "leases.db").list()
