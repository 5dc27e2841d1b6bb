"""What Cosmos DB refuses or fails to do, in the errors of lease containers.

What may pass (throttling, splits, timeouts, lost connections) is ``ContainerUnavailable``:
a write may have happened. What a person has to change is ``ContainerRefused``, with
advice. Texts of the service are cut to one line; none of them repeats a key.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos.exceptions import CosmosHttpResponseError

from changefeed.leases.errors import ContainerError, ContainerRefused, ContainerUnavailable

_LONGEST_TEXT = 300
_RETRY_AFTER = "x-ms-retry-after-ms"

_THROTTLED = 429
_MAY_PASS = frozenset({408, 410, 449, 500, 502, 503, 504})
_NO_SESSION = 1002  # with 404: a replica that lags behind
_AWAY = (3, 1008)  # with 403: writes are elsewhere for now, or the account is moving
_ADVICE: Mapping[int, str] = {
    400: "the request was refused; is this endpoint a Cosmos DB for NoSQL?",
    401: "the key is wrong, or the clock of this machine: check CHANGEFEED_COSMOS__KEY (or "
    "CHANGEFEED_COSMOS__CONNECTION_STRING)",
    403: "this identity may not do that: give it the role 'Cosmos DB Built-in Data "
    "Contributor' on the account, and look at the account's firewall. Databases and "
    "containers can be created with a key only",
    404: "there is no such database or container: check the names, or let the lease "
    "container be created with --create-lease-container",
}


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Turn the errors of the client into ours; ``where`` is the container, for people."""
    try:
        yield
    except CosmosHttpResponseError as error:
        raise _answered(error, where) from error
    except ClientAuthenticationError as error:
        raise ContainerRefused(
            f"{where}: no Azure identity was accepted ({_line(str(error))}). Sign in (az "
            "login), or give this machine a managed identity; or set CHANGEFEED_COSMOS__KEY"
        ) from error
    except (AzureError, OSError) as error:
        raise ContainerUnavailable(f"{where}: no answer ({_line(str(error))})") from error
    except RecursionError as error:
        # The client follows a split again and again, without a pause, as long as it lasts.
        raise ContainerUnavailable(f"{where}: its ranges are being split") from error


def _answered(error: CosmosHttpResponseError, where: str) -> ContainerError:
    status, sub = error.status_code or 0, error.sub_status or 0
    text = (
        f"{where}: {status}{f'/{sub}' if sub else ''} {_line(error.http_error_message or '')}"
    )
    if status == _THROTTLED:
        return ContainerUnavailable(
            f"{where}: more requests than its throughput allows (429)", _retry_after(error)
        )
    passing = status in _MAY_PASS or (status, sub) == (404, _NO_SESSION)
    if passing or (status == 403 and sub in _AWAY):  # noqa: PLR2004
        return ContainerUnavailable(text, _retry_after(error))
    return ContainerRefused(f"{text}; {_ADVICE.get(status, 'asking again cannot help')}")


def _retry_after(error: CosmosHttpResponseError) -> float | None:
    text = (error.headers or {}).get(_RETRY_AFTER)
    return None if text is None else float(text) / 1000


def _line(text: str) -> str:
    """Return the message in one line; services wrap theirs into JSON, and add ids."""
    found = re.search(r'Errors[\\":\s]+\[\\*"(.*?)\\*"\]', text)
    line = " ".join((found.group(1) if found else text).split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[:_LONGEST_TEXT]}…"
