"""What every part of the program for Python uses: to try operations, and to print them."""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

_REFUSALS: Final = (
    "is not supported by this emulator",
    "which the calling client does not support",  # as an account says it
    "Expected NoValue, but got",  # the client merges values of one type only
)


class Report:
    """Tries operations, and prints how each ended."""

    def __init__(self, client: str) -> None:
        self._client = client

    def of(self, operation: str, attempt: Callable[[], Any]) -> None:
        result, reason = "works", ""
        try:
            attempt()
        except Exception as thrown:  # noqa: BLE001 - whatever it is, it is printed
            reason = f"{type(thrown).__name__}: {thrown}"[:1500]
            result = "refused" if any(x in reason for x in _REFUSALS) else "failed"
        line = {"client": self._client, "operation": operation}
        sys.stdout.write(json.dumps(line | {"result": result, "reason": reason}) + "\n")


def expect(wanted: Any, found: Any) -> None:
    assert wanted == found, f"expected {wanted!r}, found {found!r}"


def status(wanted: int, attempt: Callable[[], Any]) -> None:
    try:
        attempt()
    except CosmosHttpResponseError as refused:
        expect(wanted, refused.status_code)
    else:
        raise AssertionError(f"expected the status {wanted}, and it worked")


def item(name: str, pk: str, n: int | None = None, **more: Any) -> dict[str, Any]:
    return {"id": name, "pk": pk, **({} if n is None else {"n": n}), **more}


class Trial:
    """Some operations, in a database of the program's own."""

    def __init__(self, report: Report, client: Any, name: str) -> None:
        self.of = report.of
        self.client = client
        self.name = name
        self.database = client.get_database_client(name)
        is_sync = isinstance(client, CosmosClient)  # the other one asks for no leave
        self.wide = {"enable_cross_partition_query": True} if is_sync else {}

    def run(self) -> None:
        raise NotImplementedError

    def made(self, name: str, **options: Any) -> Any:
        return self.database.create_container_if_not_exists(
            name, PartitionKey("/pk"), **options
        )
