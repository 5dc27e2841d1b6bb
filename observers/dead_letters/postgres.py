"""Dead letters in PostgreSQL: any number of hosts, on any number of machines.

One row for each letter in ``SCHEMA.dead_letters``, in columns a person can read (``select
id, error, text from changefeed.dead_letters``); ``letter`` holds the whole, and is what is
read back. Every call is one statement, committed when it returns. NUL, which PostgreSQL has
none of, is left out of the columns for people.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec

from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterId,
    check_same_change,
    in_order,
    no_letters,
)
from changefeed.observers.errors import DeadLettersRefused, DeadLettersUnavailable
from changefeed.runtime.address_options import read_options, write_options
from changefeed.runtime.errors import answered
from changefeed.runtime.sqlstates import why_it_may_pass
from changefeed.runtime.tls import certificate_failure

_SCHEMA = "changefeed"
_CONNECTIONS = 2
_TIMEOUT = 30.0
_LOCK = int.from_bytes(b"CFHD", "big")
_TABLE = "select to_regclass($1)::text"
_COLUMNS = """(
    hash bytea primary key,
    id text not null,
    range text not null,
    sequence bigint not null,
    key text not null,
    operation text not null,
    body text not null,
    error text not null,
    text text not null,
    attempts integer not null,
    host text not null,
    failed_at timestamptz not null,
    letter bytea not null
)"""

_decoder = msgspec.json.Decoder(DeadLetter)


class PostgresDeadLetters:
    """Letters behind a pool of connections; ``open_postgres`` makes it."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", table: str, where: str) -> None:
        self._pool = pool
        self._where = where
        # The table is a quoted name, and nothing else is put into a statement.
        self._insertion = (
            f"insert into {table} values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,"  # noqa: S608
            " $13) on conflict do nothing returning 1"
        )
        self._listing = f"select letter from {table}"  # noqa: S608
        self._deletion = f"delete from {table} where hash = $1 returning 1"  # noqa: S608

    async def put(self, letter: DeadLetter) -> None:
        while not await self._fetch(self._insertion, *_row(letter)):
            kept = await self.get(letter.id)
            if kept is not None:  # else it was removed in between
                return check_same_change(letter, kept, self._where)
        return None

    async def list(self) -> Sequence[DeadLetter]:
        return sorted(await self._letters(self._listing), key=in_order)

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        found = await self._letters(f"{self._listing} where hash = $1", _hash(letter_id))
        return found[0] if found else None

    async def remove(self, letter_id: LetterId) -> bool:
        return bool(await self._fetch(self._deletion, _hash(letter_id)))

    async def _letters(self, statement: str, *parameters: object) -> Sequence[DeadLetter]:
        rows = await self._fetch(statement, *parameters)
        return [_decoder.decode(x["letter"]) for x in rows]

    async def _fetch(self, statement: str, *parameters: object) -> Sequence[Mapping[str, Any]]:
        with _errors(self._where, lambda text, _: OSError(text)):
            rows: Sequence[Mapping[str, Any]] = await self._pool.fetch(statement, *parameters)
        return rows


@asynccontextmanager
async def open_postgres(
    place: str, *, password: str | None = None, must_exist: bool = False
) -> AsyncIterator[PostgresDeadLetters]:
    """Make the table if it is not there, unless it ``must_exist``.

    Raise ``DeadLettersUnavailable`` if no answer came, ``DeadLettersRefused`` if it cannot be.
    ``place`` is ``//USER@HOST/DATABASE``, with ``?schema=NAME`` unless it is ``changefeed``.
    """
    parts = urlsplit(f"postgresql:{place}")
    options = read_options(parts.query)
    name = options.pop("schema", _SCHEMA).replace('"', '""')
    dsn = urlunsplit(parts._replace(query=write_options(options)))
    where = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if not place.startswith("//") or not name:
        raise DeadLettersRefused(f"write {where} as postgresql://USER@HOST/DATABASE")
    with _errors(where, _not_opened):
        pool = asyncpg.create_pool(
            dsn,
            min_size=0,  # it would complain in the log while the server is away
            max_size=_CONNECTIONS,
            target_session_attrs="read-write",
            command_timeout=_TIMEOUT,
            server_settings={"application_name": "changefeed-host"},
            **({"password": password} if password else {}),
        )
        await pool
    try:
        with _errors(where, _not_opened):
            if not must_exist:
                await _create(pool, f'"{name}"')
            elif await pool.fetchval(_TABLE, f'"{name}".dead_letters') is None:
                raise no_letters(f"{where}?schema={name}")
        yield PostgresDeadLetters(pool, f'"{name}".dead_letters', where)
    finally:
        pool.terminate()


async def _create(pool: "asyncpg.Pool[asyncpg.Record]", schema: str) -> None:
    """Create what is missing; where nothing is, no right to create is needed."""
    table = f"{schema}.dead_letters"
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(f"select pg_advisory_xact_lock({_LOCK})")
        if await connection.fetchval(_TABLE, table) is None:
            there = await connection.fetchval("select to_regnamespace($1)::text", schema)
            if there is None:
                await connection.execute(f"create schema {schema}")
            await connection.execute(f"create table {table} {_COLUMNS}")


@contextmanager
def _errors(where: str, translated: Callable[[str, Exception], Exception]) -> Iterator[None]:
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
        ValueError,
    ) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise translated(f"dead letters in {where}: {text}", error) from error


def _not_opened(text: str, error: Exception) -> Exception:
    """Return what it means that the place could not be opened."""
    match error:
        case asyncpg.TargetServerAttributeNotMatched():
            return DeadLettersUnavailable(f"{text}; only a read-only standby answers")
        case asyncpg.PostgresError():
            reason = why_it_may_pass(error.sqlstate or "")
        case OSError() if certificate_failure(error) is None:
            reason = "no answer"
        case _:
            reason = None
    if reason is None:
        refused = DeadLettersRefused(text)
        return answered(refused) if isinstance(error, asyncpg.PostgresError) else refused
    return DeadLettersUnavailable(f"{text}; {reason}")


def _hash(letter_id: LetterId) -> bytes:
    """Return the key of a letter; ids may be longer than an index takes."""
    return hashlib.sha256(letter_id.encode()).digest()


def _row(letter: DeadLetter) -> Sequence[object]:
    texts = (
        *(letter.key, letter.change.operation.value),
        *(
            letter.change.body.decode(errors="replace"),
            letter.failure.kind,
            letter.failure.text,
        ),
    )
    return (
        _hash(letter.id),
        *map(_plain, (letter.id, letter.range_id)),
        letter.sequence,
        *map(_plain, texts),
        letter.attempts,
        _plain(letter.host),
        letter.failed_at,
        msgspec.json.encode(letter),
    )


def _plain(text: str) -> str:
    return text.replace("\0", "")
