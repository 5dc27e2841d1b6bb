"""What Azure Blob Storage refuses or fails to do, in the errors of lease containers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from changefeed.runtime.errors import (
    StoreError,
    StoreMissing,
    StoreRefused,
    StoreUnavailable,
    answered,
    in_one_line,
)
from changefeed.runtime.http_answer import retry_after
from changefeed.runtime.tls import SYSTEM_ADVICE, certificate_failure

_ID_OF_REQUEST = "x-ms-request-id"  # each answer of a storage account has one
_ERRORS = 400
_MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
_NO_CONTAINER = "ContainerNotFound"
_BEING_DELETED = "ContainerBeingDeleted"
_ADVICE: Mapping[int, str] = {
    401: "check CHANGEFEED_BACKENDS__BLOB__KEY and the clock of this machine",
    403: "this identity or key may not do that: give it the role 'Storage Blob Data "
    "Contributor' on the container, check CHANGEFEED_BACKENDS__BLOB__KEY, and look at the "
    "account's firewall",
    404: "there is no such container: check the name, or let a host create it (of "
    "leases with --set=leases.create=true)",
    409: "the account does not take this write; is the container immutable (WORM), or is a "
    "lock on the blob?",
}


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Turn the errors of the client into ours; ``where`` is the container, for people."""
    try:
        yield
    except ClientAuthenticationError as error:
        raise answered(_answered(error, where)) from error
    except HttpResponseError as error:
        raise answered(_answered(error, where)) from error
    except (AzureError, OSError) as error:
        certificate = certificate_failure(error)
        if certificate is not None:
            text = f"{where}: {certificate}; {SYSTEM_ADVICE}"
            raise answered(StoreRefused(text)) from error
        raise StoreUnavailable(f"{where}: no answer ({in_one_line(error)})") from error


def check_answer(where: str, response: Any) -> None:
    """Raise ``StoreUnavailable`` for a success that no storage account has reported.

    Not ``StoreRefused``: a proxy may answer so for a while, and a host that runs would
    end for it. The client would read the page of a web server as a blob without content.
    """
    http = response.http_response
    if http.status_code < _ERRORS and _ID_OF_REQUEST not in http.headers:
        kind = http.headers.get("Content-Type") or "without a content type"
        raise StoreUnavailable(
            f"{where}: the server is not a storage account ({http.status_code}, {kind}); "
            "check the address, and any proxy between"
        )


def _answered(error: HttpResponseError, where: str) -> StoreError:
    status, code = error.status_code or 0, str(getattr(error, "error_code", "") or "")
    said = code or in_one_line(error)
    what = f"{status} {said}" if status else f"no Azure identity was accepted ({said})"
    text = f"{where}: {what}"
    if status in _MAY_PASS or code == _BEING_DELETED:
        return StoreUnavailable(text, _retry_after(error))
    if not status:
        return StoreRefused(
            f"{text}. Sign in (az login), or give this machine a managed identity; or set "
            "CHANGEFEED_BACKENDS__BLOB__KEY"
        )
    refused = StoreMissing if code == _NO_CONTAINER else StoreRefused
    return refused(f"{text}; {_ADVICE.get(status, 'asking again cannot help')}")


def _retry_after(error: HttpResponseError) -> float | None:
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    return retry_after(headers.get("Retry-After", ""))
