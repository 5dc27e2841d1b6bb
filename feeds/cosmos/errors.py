"""What the errors of Cosmos DB and its client mean, for feeds and leases alike.

What may pass (throttling, splits, a write region that moves, servers that are busy, lost
connections, no file handles) is distinguished from what a person has to change. Texts of
the service are cut to one line; none of them repeats a key.
"""

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError

from changefeed.feeds.cosmos.address import AddressWrong
from changefeed.runtime.errors import answered, in_one_line
from changefeed.runtime.printable import one_line
from changefeed.runtime.tls import SYSTEM_ADVICE, certificate_failure

T = TypeVar("T")
TIMEOUT: Final = 30.0
"""Seconds for each request."""
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
GONE: Final = 410
THROTTLED: Final = 429
_CLIENT_ERRORS: Final = range(400, 500)
_MAY_PASS: Final = frozenset({408, GONE, THROTTLED, 449})
_MAY_PASS_AS: Final = frozenset(
    {
        (NOT_FOUND, 1002),  # a replica that lags behind the session
        (NOT_FOUND, 1013),  # a container that is still being made
        (403, 3),  # writes have moved to another region
        (403, 1008),  # the account is moving
    }
)
_UNREADABLE: Final = (AttributeError, LookupError, TypeError, msgspec.DecodeError, zlib.error)
"""What the client raises where an answer is whole, and not what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorAnswer:
    """An answer that is an error: its codes, the service's words, the wait it asks for."""

    status: int
    substatus: int = 0
    message: str = ""
    retry_after: float | None = None

    @property
    def may_pass(self) -> bool:
        """Whether asking again can help."""
        if self.status not in _CLIENT_ERRORS:
            return True
        return self.status in _MAY_PASS or (self.status, self.substatus) in _MAY_PASS_AS

    @property
    def code(self) -> str:
        return f"{self.status}/{self.substatus}" if self.substatus else f"{self.status}"


def problem_of(status: int, headers: Mapping[str, str], message: str) -> ErrorAnswer:
    wait = headers.get("x-ms-retry-after-ms")
    return ErrorAnswer(
        status=status,
        substatus=int(headers.get("x-ms-substatus") or 0),
        message=_said_in(message),
        retry_after=None if wait is None else float(wait) / 1000,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Translator:
    """Makes the errors of a feed, or of a lease container, from those of Cosmos DB.

    ``advice`` says by status what a person has to do, and ``missing`` is for what is not
    there, where that is not only ``refused``.
    """

    unavailable: Callable[[str, float | None], Exception]
    refused: Callable[[str], Exception]
    advice: Mapping[int, str]
    missing: Callable[[str], Exception] | None = None

    def error(self, where: str, problem: ErrorAnswer) -> Exception:
        """Return what an answer means; ``where`` is the container, for people."""
        if problem.status == THROTTLED:
            text = f"{where} throttles: more requests than its throughput allows (429)"
            return self.unavailable(text, problem.retry_after)
        text = f"{where}: {problem.code} {problem.message}".rstrip(" .")
        if problem.status == GONE:
            text = f"{where} is being split or merged ({problem.code})"
        if problem.may_pass:
            return self.unavailable(text, problem.retry_after)
        advice = self.advice.get(problem.status, "asking again cannot help")
        if problem.status == NOT_FOUND and self.missing is not None:
            return answered(self.missing(f"{text}; {advice}"))
        return self._refused(f"{text}; {advice}")

    def _refused(self, text: str) -> Exception:
        return answered(self.refused(text))

    @contextmanager
    def errors(self, where: str) -> Iterator[None]:
        """Turn what the client raises into our errors."""
        try:
            yield
        except Exception as error:
            if (ours := self.ours(where, error)) is not None:
                raise ours from error
            raise

    async def asked(self, where: str, call: Awaitable[T]) -> T:
        """Await what is asked of the client, in time. Raise our errors."""
        try:
            async with asyncio.timeout(TIMEOUT) as bound:
                return await call
        except Exception as error:
            if isinstance(error, TimeoutError) and bound.expired():
                silence = f"{where} did not answer within {TIMEOUT:g} s"
                raise self.unavailable(silence, None) from error
            if (ours := self.ours(where, error)) is not None:
                raise ours from error
            raise

    def ours(self, where: str, error: Exception) -> Exception | None:
        """Return what an error of the client means; ``None`` for one of somebody else."""
        if isinstance(error, CosmosHttpResponseError):
            return self.error(where, problem_in(error))
        if isinstance(error, ClientAuthenticationError):
            return self._refused(
                f"{where}: no Azure identity was accepted ({in_one_line(error)}). Sign in "
                "(az login), or give this machine a managed identity; or set "
                "CHANGEFEED_COSMOS__KEY"
            )
        if isinstance(error, AddressWrong):
            return self.refused(str(error))
        of_connection = isinstance(error, AzureError | OSError)
        if of_connection and (certificate := certificate_failure(error)) is not None:
            return self._refused(f"{where}: {certificate}; {SYSTEM_ADVICE}")
        silence = _silence(where, error)
        return None if silence is None else self.unavailable(silence, None)


def _silence(where: str, error: Exception) -> str | None:
    if isinstance(error, AzureError | OSError):
        return f"{where}: no answer ({in_one_line(error)})"
    if isinstance(error, RecursionError):
        # The client follows a split again and again, without a pause, as long as it lasts.
        return f"{where} is being split or merged"
    return no_account(where, repr(error)) if isinstance(error, _UNREADABLE) else None


def no_account(where: str, found: str) -> str:
    """Say what an answer means that no account gives. It may pass: a proxy may give it."""
    return (
        f"{where}: the server is not a Cosmos DB account ({one_line(found)}); check the "
        "address, and any proxy between"
    )


def problem_in(error: CosmosHttpResponseError) -> ErrorAnswer:
    headers = {**(error.headers or {}), "x-ms-substatus": str(error.sub_status or 0)}
    message = error.http_error_message or str(error.message or "")
    return problem_of(error.status_code or 0, headers, message)


def _said_in(text: str) -> str:
    """Return a message in one line; services wrap theirs into JSON, and add ids."""
    found = re.search(r'Errors[\\":\s]+\[\\*"(.*?)\\*"\]', text)
    return one_line(found.group(1) if found else text)
