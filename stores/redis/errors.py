"""What Redis refuses or fails to do, in the errors of lease containers."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as NoConnection
from redis.exceptions import TimeoutError as NoAnswer

from changefeed.runtime.errors import (
    StoreError,
    StoreRefused,
    StoreUnavailable,
    answered,
    in_one_line,
)
from changefeed.runtime.tls import certificate_failure

_MAY_PASS: Mapping[str, str] = {
    "READONLY": "it is a replica now; the primary is elsewhere, or will be",
    "LOADING": "the server is reading its data",
    "BUSY": "another script keeps the server busy",
    "MASTERDOWN": "a replica has lost its primary",
    "CLUSTERDOWN": "the cluster is not whole",
    "TRYAGAIN": "the cluster is moving keys",
    "MOVED": "the cluster has moved the keys: cluster=true in the address follows them",
    "ASK": "the cluster is moving keys: cluster=true in the address follows them",
    "OOM": "the server has no memory left: give it more (maxmemory)",
    "MISCONF": "the server cannot save to its disk; look at its log",
    "NOREPLICAS": "the server has fewer replicas than it wants (min-replicas-to-write)",
    "UNKILLABLE": "another script keeps the server busy",
}
_RIGHTS = (
    "this user needs +@read +@write +@scripting +@connection +info +time on the keys "
    "changefeed:*, and +cluster in a cluster"
)
_ADVICE: Mapping[str, str] = {
    "executing the script can't run": _RIGHTS,
    "WRONGTYPE": "another program has this key: give this fleet another name (fleet=)",
    "cluster support disabled": "leave cluster=true out of the address",
}
_OTHERWISE = "is this a Redis of version 5 or newer?"
_CERTIFICATE_ADVICE = (
    "name the authority that signed the server's in the address (ssl_ca_certs=FILE), the "
    "server by a name that its certificate has, and your own where it asks for one "
    "(ssl_certfile=FILE, ssl_keyfile=FILE); and look at the clock of this machine"
)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Turn the errors of the client into ours; ``where`` is the address, for people."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError) as error:
        certificate = certificate_failure(error)
        if certificate is not None:
            text = f"{where}: {certificate}; {_CERTIFICATE_ADVICE}"
            raise answered(StoreRefused(text)) from error
        raise answered(_translated(error, where)) from error


def _translated(error: BaseException, where: str) -> StoreError:
    match error:
        case AuthenticationError():
            return StoreRefused(
                f"{where}: {error}; check the user in the address and the password "
                "(CHANGEFEED_BACKENDS__REDIS__PASSWORD)"
            )
        case NoPermissionError():
            return StoreRefused(f"{where}: {error}; {_RIGHTS}")
        case RedisClusterException():
            # No RedisError: it stands for what the last node that was asked has answered.
            cause = error.__cause__ or error.__context__
            if isinstance(cause, (RedisError, RedisClusterException, OSError)):
                return _translated(cause, where)
            return StoreUnavailable(f"{where}: {in_one_line(error)}; the cluster is not whole")
        case RedisError():
            return _answered(error, where)
    return StoreUnavailable(f"{where}: no answer ({error})")


def _answered(error: RedisError, where: str) -> StoreError:
    text = in_one_line(error)
    word = _known_word(error)
    if word is not None:
        return StoreUnavailable(f"{where}: {text}; {_MAY_PASS[word]}")
    if isinstance(error, (NoConnection, NoAnswer)):
        return StoreUnavailable(f"{where}: no answer ({text})")
    if isinstance(error, ResponseError):
        advice = (y for x, y in _ADVICE.items() if x in text)
        return StoreRefused(f"{where}: {text}; {next(advice, _OTHERWISE)}")
    return StoreUnavailable(f"{where}: {text}")


def is_read_only(error: RedisError) -> bool:
    """Whether a server that took writes before has become a replica."""
    return _known_word(error) == "READONLY"


def _known_word(error: RedisError) -> str | None:
    """Return what may pass. A server before 7 quotes it, with a dash, from within a script."""
    words = [getattr(error, "status_code", None), *re.findall(r"(?:^|: -)([A-Z]+)", str(error))]
    return next((x for x in words if x in _MAY_PASS), None)
