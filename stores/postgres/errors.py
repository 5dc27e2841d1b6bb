"""What PostgreSQL refuses or fails to do, in the errors of lease containers.

What may pass (a restart, a failover, too many connections, a full disk) is
``StoreUnavailable``: a write may have happened. What a person has to change is
``StoreRefused``, with advice.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import asyncpg

from changefeed.runtime.errors import (
    StoreError,
    StoreRefused,
    StoreUnavailable,
    answered,
    in_one_line,
)
from changefeed.runtime.sqlstates import READ_ONLY, why_it_may_pass
from changefeed.runtime.tls import certificate_failure

_WITHOUT_TLS = "rejected SSL upgrade"
_CERTIFICATE_ADVICE = (
    "name the authority that signed the server's in the address (sslrootcert=FILE), the server "
    "by a name that its certificate has, and your own where it asks for one (sslcert=FILE, "
    "sslkey=FILE); and look at the clock of this machine"
)
_NO_TABLES = "let a host create the tables (of leases with --set=leases.create=true)"
_ADVICE: Mapping[str, str] = {
    "28P01": "check the user and the password (CHANGEFEED_BACKENDS__POSTGRES__PASSWORD, "
    "PGPASSWORD or ~/.pgpass)",
    "28000": "the server does not let this user in; look at its pg_hba.conf",
    "3D000": "create the database, or name another one",
    "3F000": _NO_TABLES,
    "42P01": _NO_TABLES,
    "42501": "this role may not do that: it needs USAGE on the schema, and SELECT, INSERT, "
    "UPDATE and DELETE on its tables; CREATE only to create them",
    "42703": "the tables have another form than this version knows: run it once with "
    "--set=leases.create=true, or give leases a schema of their own (schema=)",
}


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Turn the errors of the client into ours; ``where`` is the address, for people."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
    ) as error:
        raise answered(_translated(error, where)) from error


def is_read_only(error: BaseException) -> bool:
    """Whether a server that took writes before has become a standby."""
    return isinstance(error, asyncpg.PostgresError) and error.sqlstate == READ_ONLY


def _translated(error: Exception, where: str) -> StoreError:
    certificate = certificate_failure(error)
    if certificate is not None:
        return StoreRefused(f"{where}: {certificate}; {_CERTIFICATE_ADVICE}")
    match error:
        case asyncpg.TargetServerAttributeNotMatched():
            return StoreUnavailable(
                f"{where}: only a read-only standby answers; writes go to the "
                "primary. Name all servers in the address (HOST1,HOST2), and wait for the "
                "failover"
            )
        case asyncpg.PostgresError():
            return _answered(error, where)
        case asyncpg.ClientConfigurationError():
            return StoreRefused(f"{where}: {in_one_line(error)}")
    text = in_one_line(error)
    if _WITHOUT_TLS in text:
        return StoreRefused(
            f"{where}: {text}; is it PostgreSQL? Switch TLS on there, or leave sslmode= out"
        )
    return StoreUnavailable(f"{where}: no answer ({text})")


def _answered(error: asyncpg.PostgresError, where: str) -> StoreError:
    state = error.sqlstate or ""
    text = f"{where}: {in_one_line(error)} ({state or 'no code'})"
    if state in _ADVICE:
        return StoreRefused(f"{text}; {_ADVICE[state]}")
    hint = why_it_may_pass(state)
    if hint is not None:
        return StoreUnavailable(f"{text}; {hint}")
    return StoreRefused(f"{text}; asking again cannot help")
