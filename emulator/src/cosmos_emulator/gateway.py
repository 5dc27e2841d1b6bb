"""HTTP to calls and back: who may ask, what strikes a request, and what goes out.

The order for each request: address, signature, faults before, throttle, the operation,
faults after. An error inside an operation is an answer too; any other exception is
logged and answered with 500.
"""

import asyncio
import contextlib
import json
import logging
import sqlite3
import uuid
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Final, Literal
from urllib.parse import unquote

from aiohttp import web

from cosmos_emulator import (
    auth,
    batches,
    documents,
    permissions,
    procedures,
    resources,
    script_requests,
    users,
)
from cosmos_emulator.address import Address, address_of, operation_of
from cosmos_emulator.calls import (
    Answer,
    Call,
    Emulator,
    Handler,
    check_incarnation,
    range_headers,
)
from cosmos_emulator.consistency import consistency_asked
from cosmos_emulator.containers import Container
from cosmos_emulator.errors import OWNER_NOT_FOUND, SPLIT_RUNNING, CosmosError, bad_request
from cosmos_emulator.faults import Faults, Target
from cosmos_emulator.procedures import has_triggers, write_with_triggers
from cosmos_emulator.regions import Region, Regions
from cosmos_emulator.throttle import Throttle

_log = logging.getLogger("emulator")
REQUEST_LOG: Final = logging.getLogger("emulator.requests")
"""A line of JSON for each request, at the level INFO; status 0 is a dropped connection."""
_HANDLERS: Final = (
    resources.HANDLERS
    | documents.HANDLERS
    | batches.HANDLERS
    | users.HANDLERS
    | script_requests.HANDLERS
    | procedures.HANDLERS
)
_MAX_WAIT: Final = 30.0  # seconds for a split to end, as long as clients wait
_OF_AN_ITEM: Final = frozenset({404, 409, 412})
_NO_BODY: Final = frozenset({204, 304})


class ConnectionDropped(Exception):
    """A fault: the client gets no answer at all."""


class Gateway:
    """Answers everything but ``/_emulator``; counts what it was asked."""

    def __init__(self, emulator: Emulator, regions: Regions) -> None:
        self.emulator = emulator
        self.regions = regions
        self.faults = Faults(emulator.settings.fault_seed)
        self.throttle = Throttle()
        self.requests: Counter[tuple[str, int]] = Counter()
        self._key = emulator.key

    async def handle(self, request: web.Request) -> web.StreamResponse:
        activity = request.headers.get("x-ms-activity-id") or str(uuid.uuid4())
        operation, start = "refused", asyncio.get_running_loop().time()
        try:
            address = address_of(request.rel_url.raw_path)
            operation = operation_of(address, request.method, request.headers)
            answer = await self._answered(request, address, operation)
        except CosmosError as error:
            answer = _refusal(error, activity)
        except ConnectionDropped:
            self.requests[operation, 0] += 1
            _log_request(request, 0, 0.0, asyncio.get_running_loop().time() - start)
            assert request.transport is not None
            request.transport.abort()
            return web.Response()  # goes nowhere
        except Exception:  # noqa: BLE001 - the border: logged, and answered with 500
            _log.exception("%s failed", operation)
            sorry = CosmosError(500, "The emulator failed; its log says how.")
            answer = _refusal(sorry, activity)
        self.requests[operation, answer.status] += 1
        seconds = asyncio.get_running_loop().time() - start
        _log_request(request, answer.status, answer.charge, seconds)
        answered = _response(answer, activity, seconds)
        answered.headers["Content-Location"] = (
            f"{request.scheme}://{request.host}{request.raw_path}"
        )
        return answered

    async def _answered(self, request: web.Request, address: Address, operation: str) -> Answer:
        region = self._region(request, operation)
        self._check_may(request, address, operation)
        body = await _body(request)
        call = self._call(request, address, operation, body)
        target = self._target(call, region) if self.faults else None
        await _strike(self.faults, target, "before")
        if call.container is not None:
            self.throttle.admit(call.container.id, asyncio.get_running_loop().time())
        check_incarnation(call)
        answer = await self._run(call, region)
        if call.container is not None:
            self.throttle.spend(call.container.id, answer.charge)
        await _strike(self.faults, target, "after")
        return answer

    def _region(self, request: web.Request, operation: str) -> Region:
        """Return the region that a request came to.

        One that is down answers on no connection that it had; but at the account's own address,
        where clients find the other regions, the account can be read.
        """
        port = request.get_extra_info("sockname", ("", 0))[1]
        region = self.regions.at(port)
        if region.is_down and (region.port == port or operation != "read_account"):
            raise ConnectionDropped
        return region

    async def _run(self, call: Call, region: Region) -> Answer:
        """Run an operation; if it met a split that it did not name, wait and run it again."""
        named = "x-ms-documentdb-partitionkeyrangeid" in call.headers
        give_up = asyncio.get_running_loop().time() + _MAX_WAIT
        while True:
            try:
                return await self._run_once(call, region)
            except CosmosError as error:
                left = give_up - asyncio.get_running_loop().time()
                met_a_split = (error.status, error.substatus) == (410, SPLIT_RUNNING)
                if named or not met_a_split or left <= 0:
                    raise
                with contextlib.suppress(TimeoutError):  # the next try says what is the matter
                    async with asyncio.timeout(left):
                        await self.emulator.ranges.settled()

    async def _run_once(self, call: Call, region: Region) -> Answer:
        account = self.regions.account_in(region, call.operation, call.consistency)
        if call.container is not None and call.container.default_ttl is not None:
            await self.emulator.items.expire(call.container)
        try:
            done = _handler(call)(account, call)
            answer = await done if isinstance(done, Awaitable) else done
            return _unless_known(call, answer)
        except CosmosError as error:
            error.headers = _told_of(account, call, error.status)
            raise
        except RecursionError:
            raise bad_request("The request is nested too deeply.") from None
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                raise
            raise CosmosError(
                507, "The disk of the emulator is full: nothing of this was stored."
            ) from error

    def _check_may(self, request: web.Request, address: Address, operation: str) -> None:
        """Raise 401 or 403 unless a request is signed, or has a token that allows it."""
        header = request.headers.get("Authorization")
        if header is None:
            raise CosmosError(401, "The request has no Authorization header.")
        token, now = unquote(header), self.emulator.clock()
        if token.startswith("type=aad"):
            entra = token.partition("sig=")[2]
            auth.check_entra_token(key=self._key, token=entra, now=now)
            users.check_entra(address, operation)
            return
        if token.startswith("type=resource"):
            rid = permissions.opened_by(token, self._key, now)
            allowed = self.emulator.principals.definition(rid)
            users.check_allowed(self.emulator, allowed, address, operation, request.headers)
            return
        auth.check_signature(
            key=self._key,
            verb=request.method,
            kinds=address.signed_kinds,
            links=address.signed_links,
            date=request.headers.get("x-ms-date", request.headers.get("Date", "")),
            token=token,
            now=now,
        )

    def _call(
        self, request: web.Request, address: Address, operation: str, body: bytes
    ) -> Call:
        container = None
        if address.has_container:
            container = self._container(address)
        return Call(
            address=address,
            operation=operation,
            headers=request.headers,
            body=body,
            url=f"{request.scheme}://{request.host}/",
            container=container,
            consistency=consistency_asked(
                request.headers.get("x-ms-consistency-level"), self.regions.consistency
            ),
            regions=self.regions,
        )

    def _container(self, address: Address) -> Container:
        try:
            return self.emulator.containers.container(address.database, address.container)
        except CosmosError as error:
            if len(address.ids) == 2 and not address.is_feed:  # noqa: PLR2004 - itself
                raise
            raise CosmosError(404, error.message, OWNER_NOT_FOUND) from None

    def _target(self, call: Call, region: Region) -> Target:
        at = Target(operation=call.operation, region=region.name)
        if call.container is None:
            return at
        held = call.headers.get("x-ms-documentdb-partitionkeyrangeid")
        if held is None and "x-ms-documentdb-partitionkey" in call.headers:
            epk = call.some_key().epk
            ranges = self.emulator.ranges.current(call.container.number)
            held = next(x.id for x in ranges if x.low <= epk < x.high)
        return replace(at, container=call.container.id, range=held)


def _handler(call: Call) -> Handler:
    return write_with_triggers if has_triggers(call) else _HANDLERS[call.operation]


def _unless_known(call: Call, answer: Answer) -> Answer:
    """Answer with 304 where the client has what it reads; feeds mean something else by it."""
    etag = answer.headers.get("etag")
    is_read = call.operation.startswith("read_") and not call.address.is_feed
    if etag is not None and is_read and call.conditions.is_unmodified(etag):
        return Answer(status=304, headers=answer.headers)
    return answer


def _told_of(account: Emulator, call: Call, status: int) -> dict[str, str]:
    """Return the range and the session of an item that an error is about."""
    has_key = "x-ms-documentdb-partitionkey" in call.headers
    if call.container is None or not has_key or status not in _OF_AN_ITEM:
        return {}
    held = account.ranges.holding(call.container.number, call.some_key().epk)
    return range_headers(call, held)


async def _strike(
    faults: Faults, target: Target | None, when: Literal["before", "after"]
) -> None:
    """Let the faults of a request happen, a delay before an error."""
    if target is None:  # there were none when it came
        return
    for fault in faults.striking(target, when):
        match fault.effect:
            case "delay":
                await asyncio.sleep(fault.seconds)
            case "drop":
                raise ConnectionDropped
            case "error":
                raise CosmosError(
                    fault.status,
                    f"A fault that was asked for, {when} {target.operation}.",
                    fault.substatus,
                    fault.retry_after_ms,
                )


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise CosmosError(413, "The request is too large.") from None


def _refusal(error: CosmosError, activity: str) -> Answer:
    headers = dict(error.headers)
    if error.substatus:
        headers["x-ms-substatus"] = str(error.substatus)
    if error.retry_after_ms is not None:
        headers["x-ms-retry-after-ms"] = str(error.retry_after_ms)
    body = error.body(activity)
    return Answer(status=error.status, body=body, headers=headers)


def _log_request(request: web.Request, status: int, charge: float, seconds: float) -> None:
    if REQUEST_LOG.isEnabledFor(logging.INFO):
        line = {
            "verb": request.method,
            "path": request.rel_url.raw_path,
            "status": status,
            "charge": charge,
            "ms": round(1000 * seconds, 2),
        }
        REQUEST_LOG.info(json.dumps(line))


def _response(answer: Answer, activity: str, seconds: float) -> web.Response:
    headers = {
        "x-ms-activity-id": activity,
        "x-ms-request-charge": f"{answer.charge:g}",
        "x-ms-request-duration-ms": f"{1000 * seconds:.2f}",
        "x-ms-gatewayversion": "version=2.14.0",
        "x-ms-serviceversion": "version=2.14.0.0",
        **answer.headers,
    }
    if answer.status in _NO_BODY:
        return web.Response(status=answer.status, headers=headers)
    headers.setdefault("Content-Type", "application/json")
    return web.Response(status=answer.status, body=answer.body, headers=headers)
