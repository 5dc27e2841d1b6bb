"""Runs every operation of Azure's client for Python, and prints a line of JSON for each.

``python -m emulator.tests.clients.python_operations DATABASE sync|async``; COSMOS_ENDPOINT and
COSMOS_KEY say where. The asynchronous client runs the same program behind ``Blocking``.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import azure.cosmos.aio
from azure.cosmos import CosmosClient

from emulator.tests.clients.python_items import Batches, Items
from emulator.tests.clients.python_queries import Feeds, Queries
from emulator.tests.clients.python_resources import Keys, Resources, Scripts, Throughput, Users
from emulator.tests.clients.python_trial import Report, Trial

_TRIALS: Final[list[type[Trial]]] = [
    Resources,
    Items,
    Batches,
    Queries,
    Feeds,
    Keys,
    Throughput,
    Scripts,
    Users,
]


class Blocking:
    """An asynchronous client, or a part of it, whose calls are waited for."""

    def __init__(self, inner: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = inner
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if type(found).__name__.endswith("Proxy"):
            return Blocking(found, self._loop)
        return self._waiting(found) if callable(found) else found

    def _waiting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def waited(*positional: Any, **named: Any) -> Any:
            made = call(*positional, **named)
            if inspect.isawaitable(made):
                made = self._loop.run_until_complete(_of(made))
            if hasattr(made, "__aiter__"):
                return self._loop.run_until_complete(_listed(made))
            return Blocking(made, self._loop) if type(made).__name__.endswith("Proxy") else made

        return waited


async def _of(made: Any) -> Any:
    return await made


async def _listed(made: Any) -> list[Any]:
    return [x async for x in made]


def run(report: Report, client: Any, name: str) -> None:
    for trial in _TRIALS:
        trial(report, client, name).run()
    report.of("delete a database", lambda: client.delete_database(name))


def main() -> None:
    name, kind = sys.argv[1:]
    account = os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"]
    database = f"{name}-python-{kind}"
    if kind == "sync":
        with CosmosClient(*account) as client:
            run(Report("python"), client, database)
        return
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        inner = azure.cosmos.aio.CosmosClient(*account)
        loop.run_until_complete(inner.__aenter__())
        run(Report("python-async"), Blocking(inner, loop), database)
        loop.run_until_complete(inner.close())


if __name__ == "__main__":
    main()
