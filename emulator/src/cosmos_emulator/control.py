"""``/_emulator``: what no real account has. Splits, merges, faults, limits, counts, snapshots.

They are answered to this machine without a signature, and to others if they are signed with
the master key: as a request about the account is, over the path.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Literal, TypeVar
from urllib.parse import unquote

import msgspec
from aiohttp import web

from cosmos_emulator import auth
from cosmos_emulator.containers import Container
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.gateway import Gateway
from cosmos_emulator.json_values import decoded
from cosmos_emulator.ranges import PhysicalRange
from cosmos_emulator.visitors import CONTROL, is_local, refused

_MAX_CHANGE: Final = 600.0  # seconds
_T = TypeVar("_T")


class _Where(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str
    container: str


class SplitRequest(_Where, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which range to cut (the only one, if there is but one), where, and for how long."""

    range: str | None = None
    at: str | None = None
    seconds: float = 0.0


class MergeRequest(_Where, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ranges: list[str]
    seconds: float = 0.0


class RegionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be of a region; left out, it stays."""

    region: str
    lag: float | None = None
    down: bool | None = None
    writes: Literal[True] | None = None


class Control:
    """The handlers of ``/_emulator``."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._emulator = gateway.emulator

    def add_to(self, router: web.UrlDispatcher) -> None:
        routes = (
            ("GET", "", self.describe),
            ("GET", "/", self.describe),
            ("POST", "/split", self.split),
            ("POST", "/merge", self.merge),
            ("GET", "/faults", self.faults),
            ("POST", "/faults", self.add_fault),
            ("DELETE", "/faults", self.clear_faults),
            ("GET", "/throttle", self.throttle),
            ("POST", "/throttle", self.set_throttle),
            ("DELETE", "/throttle", self.clear_throttle),
            ("GET", "/regions", self.regions),
            ("POST", "/regions", self.change_region),
            ("GET", "/requests", self.requests),
            ("DELETE", "/requests", self.clear_requests),
            ("POST", "/snapshot", self.snapshot),
            ("POST", "/reset", self.reset),
            ("GET", "/export", self.export),
            ("POST", "/import", self.import_),
        )
        for method, path, handler in routes:
            router.add_route(method, CONTROL + path, self._guarded(handler))
        known = ", ".join(f"{method} {CONTROL}{path}" for method, path, _ in routes)
        router.add_route("*", CONTROL + "{path:(/.*)?}", self._guarded(_refusal(known)))
        for path in ("/ready", "/alive"):  # as other emulators have it
            router.add_get(path, _is_there)

    async def describe(self, _: web.Request) -> Any:
        """Return every container with its ranges, also those that are gone."""
        containers = self._emulator.containers
        return [
            {
                "database": database.id,
                "container": container.id,
                "ranges": [
                    _shown(x) for x in self._emulator.ranges.everything(container.number)
                ],
            }
            for database in containers.databases()
            for container in containers.containers(database.id)
        ]

    async def split(self, request: web.Request) -> Any:
        """Cut a range in two and return its children."""
        wanted = await _asked(request, SplitRequest)
        ranges, container = self._emulator.ranges, self._container(wanted)
        number, hashing = container.number, container.keys.hashing
        current = ranges.current(number)
        if wanted.range is None and len(current) > 1:
            names = ", ".join(x.id for x in current)
            raise bad_request(f"Say which range to split; there are {names}.")
        name = current[0].id if wanted.range is None else wanted.range
        seconds = _allowed(wanted.seconds)
        children = await ranges.split(number, name, hashing, at=wanted.at, seconds=seconds)
        return [_shown(x) for x in children]

    async def merge(self, request: web.Request) -> Any:
        """Join neighbours and return what they became."""
        wanted = await _asked(request, MergeRequest)
        number, seconds = self._container(wanted).number, _allowed(wanted.seconds)
        ranges = self._emulator.ranges
        return _shown(await ranges.merge(number, wanted.ranges, seconds=seconds))

    async def faults(self, _: web.Request) -> Any:
        return self._gateway.faults.report()

    async def clear_faults(self, _: web.Request) -> Any:
        self._gateway.faults.clear()
        return []

    async def add_fault(self, request: web.Request) -> Any:
        body = decoded(await request.read())
        self._check_named(body)
        self._gateway.faults.add(body)
        return self._gateway.faults.report()

    async def throttle(self, _: web.Request) -> Any:
        return self._gateway.throttle.report()

    async def clear_throttle(self, _: web.Request) -> Any:
        self._gateway.throttle.clear()
        return self._gateway.throttle.report()

    async def set_throttle(self, request: web.Request) -> Any:
        now = asyncio.get_running_loop().time()
        body = decoded(await request.read())
        self._check_named(body)
        self._gateway.throttle.set(body, now)
        return self._gateway.throttle.report()

    async def regions(self, _: web.Request) -> Any:
        """Return every region, and how many transactions it has yet to take."""
        return [
            {
                "region": x.name,
                "port": x.port,
                "writes": x.writes,
                "lag": x.lag,
                "down": x.is_down,
                "transactions_behind": x.replica.transactions_behind if x.replica else 0,
            }
            for x in self._gateway.regions
        ]

    async def change_region(self, request: web.Request) -> Any:
        """Let a region lag, go down, come back, or write; in this order."""
        wanted = await _asked(request, RegionRequest)
        regions = self._gateway.regions
        _check_is_there("region", wanted.region, [x.name for x in regions])
        region = next(x for x in regions if x.name == wanted.region)
        if wanted.lag is not None:
            regions.set_lag(region, wanted.lag)
        if wanted.down is not None:
            await regions.set_down(region, is_down=wanted.down)
        if wanted.writes:
            regions.let_write(region)
        return await self.regions(request)

    async def requests(self, _: web.Request) -> Any:
        """Return how often each operation was answered with each status; 0 is a drop."""
        counts: dict[str, dict[str, int]] = {}
        for (operation, status), number in self._gateway.requests.items():
            counts.setdefault(operation, {})[str(status)] = number
        return counts

    async def clear_requests(self, _: web.Request) -> Any:
        self._gateway.requests.clear()
        return {}

    async def snapshot(self, _: web.Request) -> Any:
        """Keep the account as it is now, for ``reset``."""
        self._emulator.store.snapshot()
        return {}

    async def export(self, _: web.Request) -> Any:
        """Return an exact copy of the account, a database of SQLite."""
        return web.Response(body=self._emulator.store.copy())

    async def import_(self, request: web.Request) -> Any:
        """Put a copy in the place of what is there; it may be larger than other requests."""
        self._emulator.replace(await request.content.read())
        return {}

    async def reset(self, _: web.Request) -> Any:
        """Go back to the snapshot, or to an empty account, without faults, limits, counts."""
        self._emulator.reset()
        self._gateway.faults.clear()
        self._gateway.throttle.clear()
        self._gateway.requests.clear()
        return {}

    def _guarded(self, handler: Callable[[web.Request], Awaitable[Any]]) -> Any:
        async def guarded(request: web.Request) -> web.Response:
            try:
                self._check_may(request)
                body = await handler(request)
            except CosmosError as error:
                return refused(error)
            if isinstance(body, web.Response):
                return body
            return web.Response(body=msgspec.json.encode(body), content_type="application/json")

        return guarded

    def _check_may(self, request: web.Request) -> None:
        """Raise 401 or 403 for another machine that does not have the master key."""
        if is_local(request.remote):
            return
        header = request.headers.get("Authorization")
        if header is None:
            raise CosmosError(
                403,
                f"{CONTROL} answers to the machine that the emulator runs on, and to others if "
                f"they sign with the master key, over the path and an empty type.",
            )
        auth.check_signature(
            key=self._emulator.key,
            verb=request.method,
            kinds=[""],
            links=[request.path.strip("/")],
            date=request.headers.get("x-ms-date", ""),
            token=unquote(header),
            now=self._emulator.clock(),
        )

    def _check_named(self, body: Any) -> None:
        """Raise 400 if a fault or a limit names a container or a range that is not there."""
        named = body if isinstance(body, dict) else {}
        containers, ranges = self._emulator.containers, self._emulator.ranges
        there = [y for x in containers.databases() for y in containers.containers(x.id)]
        _check_is_there("container", named.get("container"), [x.id for x in there])
        within = [x for x in there if named.get("container") in (None, x.id)]
        names = [y.id for x in within for y in ranges.everything(x.number)]
        _check_is_there("range", named.get("range"), names)
        regions = [x.name for x in self._gateway.regions]
        _check_is_there("region", named.get("region"), regions)

    def _container(self, where: _Where) -> Container:
        return self._emulator.containers.container(where.database, where.container)


def _check_is_there(kind: str, name: Any, known: Sequence[str]) -> None:
    if name is not None and name not in known:
        there = ", ".join(sorted(set(known))) or "none"
        raise bad_request(f"There is no {kind} {name!r}; there are: {there}.")


def _refusal(known: str) -> Callable[[web.Request], Awaitable[Any]]:
    """Return the handler of what is not there."""

    async def refuse(request: web.Request) -> Any:
        raise CosmosError(
            404, f"There is no {request.method} {request.path}; there are: {known}."
        )

    return refuse


async def _is_there(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _asked(request: web.Request, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.DecodeError as error:
        raise bad_request(f"{kind.__name__}: {error}.") from error


def _allowed(seconds: float) -> float:
    if not 0 <= seconds <= _MAX_CHANGE:
        raise bad_request(f"seconds must lie between 0 and {_MAX_CHANGE:g}.")
    return seconds


def _shown(held: PhysicalRange) -> dict[str, Any]:
    return {
        "id": held.id,
        "low": held.low,
        "high": held.high,
        "parents": list(held.parents),
        "version": held.version,
        "lsn": held.lsn,
        "items": held.items,
        "bytes": held.bytes,
        "gone": held.gone is not None,
    }
