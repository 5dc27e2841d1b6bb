"""Stores of leases side by side, each over a real server on this machine, or a file.

``calls`` asks what one call takes, and how many a container sustains; ``fleets`` what hosts
send at rest and under load, and how 16 of them share 1,000 leases; ``kills`` how long a
killed host is missed. Requests and bytes are counted by a proxy before the server, so
SQLite has neither; times of ``calls`` and ``kills`` are taken without it. All results of
one kind are next to each other, with SQLite's as what they are compared with. A store
whose server is not installed is left out, and the reason is printed.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks.result import Goal, Result, exactly
from tests.support import servers

from . import calls, fleets, kills
from .measured import Measured
from .places import STORES, Ports, Store, servers_of

_FIRST = "sqlite"


def measure() -> Sequence[Result]:
    """Start each server, measure store after store, and end the servers."""
    # Sixteen hosts on one event loop block each other, and would say so again and again; so
    # would connections whose calls were cancelled when hosts stopped.
    logging.getLogger("changefeed").setLevel(logging.ERROR)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    try:
        found = {x.name: asyncio.run(_measured(x, ports)) for x, ports in _there()}
    finally:
        servers.stop_all()
    kinds = list(dict.fromkeys(x.name for results in found.values() for x in results))
    return [
        _beside(kind, store, found)
        for kind in kinds
        for store, results in found.items()
        if kind in {x.name for x in results}
    ]


def _there() -> Sequence[tuple[Store, Ports]]:
    there = []
    for store in STORES:
        try:
            there.append((store, servers_of(store)))
        except servers.Missing as missing:
            print(f"{store.name} is left out: {missing}", file=sys.stderr)
    return there


async def _measured(store: Store, ports: Ports) -> Sequence[Measured]:
    began = time.perf_counter()
    found: list[Measured] = []
    for part in (calls, fleets, kills):
        try:
            found += await part.measured(store, ports)
        except TimeoutError:  # a busy machine loses one part of one store, not the run
            print(f"{store.name}: {part.__name__} took too long", file=sys.stderr)
    print(f"{store.name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found


def _beside(kind: str, store: str, found: Mapping[str, Sequence[Measured]]) -> Result:
    """Return one number of a store with that of the first store beside it."""
    by_name = {name: {x.name: x for x in results} for name, results in found.items()}
    here, there = by_name[store][kind], by_name[_FIRST].get(kind)
    first = 0.0 if there is None or store == _FIRST else there.value
    return Result(
        name=f"stores.{kind}.{store}",
        value=here.value,
        unit=here.unit,
        against=f"stores.{kind}.{_FIRST}" if first > 0 else None,
        ratio=here.value / first if first > 0 else None,
        goal=_goal(here),
    )


def _goal(found: Measured) -> Goal | None:
    return None if found.exactly is None else exactly(found.value, found.exactly)
