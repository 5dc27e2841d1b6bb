"""Runs scripts: stored procedures, and triggers around a write.

Everything of one request happens in a thread, on a draft of one partition key, and is committed
at its end: all of it, or nothing. What a script asks of its collection waits in a queue in V8;
it is taken from there, done on the draft, and its results go back to the script's callbacks,
until nothing waits any more.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from cosmos_emulator import charges, rids
from cosmos_emulator.calls import Answer, Call, Emulator, Handler, item_headers
from cosmos_emulator.conditions import Conditions
from cosmos_emulator.draft import Draft, DraftOutdated
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.items import Item, Written, replaced_by
from cosmos_emulator.json_values import JsonObject, decoded, decoded_object
from cosmos_emulator.query import run as queries
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.sandbox import COMPILE_ERROR, SECONDS, Sandbox, failed, too_long
from cosmos_emulator.scripts import Script, ScriptKind
from cosmos_emulator.work import asking

T = TypeVar("T")
_ACCEPTS_SECONDS: Final = 0.8 * SECONDS  # afterwards the collection takes no more operations
_LARGEST_REQUEST: Final = 2 * 1024 * 1024
_LARGEST_RESPONSE: Final = 4 * 1024 * 1024
_LARGEST_LOG: Final = 6_000  # as a header, which clients take up to some 8,000 of
_DEFAULT_PAGE: Final = 100
_LARGEST_PAGE: Final = 1_000
_PRE: Final = "x-ms-documentdb-pre-trigger-include"
_POST: Final = "x-ms-documentdb-post-trigger-include"
_WRITES: Final = {
    "create_item": "Create",
    "upsert_item": "Upsert",
    "replace_item": "Replace",
    "delete_item": "Delete",
}
_COLLECTION, _DOCUMENT = 4, 6  # parts of a link


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a script left behind: bodies as values, ``None`` where there is none."""

    request: Any
    response: Any
    log: str


class Scripting:
    """The scripts of one request, on the draft of one partition key, in a thread."""

    def __init__(
        self, emulator: Emulator, call: Call, draft: Draft, budget: Budget, database: str
    ) -> None:
        self._emulator = emulator
        self._database = database
        self._call = call
        self._draft = draft
        self._key = call.key()
        self._budget = budget
        self.charge = 0.0
        self.log = ""

    def run(self, script: Script, *, operation: str = "", **given: Any) -> Outcome:
        """Run a script to its end. ``given`` is what the shim knows of: parameters, bodies."""
        with self._emulator.sandboxes.opened(self._left()) as sandbox:
            wrong = sandbox.call("__compile", script.body)
            if wrong:
                raise CosmosError(
                    400, f"{script.id!r} cannot be compiled: {wrong}", COMPILE_ERROR
                )
            container = self._call.within
            start = {
                "selfLink": container.link,
                "altLink": f"dbs/{self._database}/colls/{container.id}",
                "acceptMilliseconds": 1000 * (self._left() - SECONDS + _ACCEPTS_SECONDS),
                "operation": operation,
                "parameters": [],
                **given,
            }
            sandbox.call("__start", msgspec.json.encode(start).decode())
            return self._ended(sandbox)

    def _ended(self, sandbox: Sandbox) -> Outcome:
        """Do what a script asks for until it asks for nothing more."""
        while True:
            asked = decoded_object(sandbox.call("__asked", "").encode())
            if asked["failure"] is not None:
                found = asked["failure"]
                raise failed(f"Exception = {found['message']}\r\nStack trace: {found['stack']}")
            if not asked["operations"]:
                self.log += asked["log"]
                return Outcome(
                    request=_body(asked.get("request")),
                    response=_body(asked.get("response")),
                    log=asked["log"],
                )
            self._left()
            self._draft.take(x for y in asked["operations"] if (x := self._named(y)))
            results = [self._result(x) for x in asked["operations"]]
            sandbox.call("__settle", msgspec.json.encode(results).decode())

    def _left(self) -> float:
        try:
            return self._budget.seconds_left()
        except CosmosError:
            raise too_long() from None

    def _result(self, asked: JsonObject) -> JsonObject:
        try:
            return {"number": asked["number"], **self._done(asked)}
        except CosmosError as error:
            self._left()
            return {
                "number": asked["number"],
                "status": error.status,
                "message": msgspec.json.encode({"Errors": [error.message]}).decode(),
            }

    def _named(self, asked: JsonObject) -> str | None:
        """Return the id that an operation is about, where it gives it by name."""
        if "body" in asked:
            body = decoded(asked["body"].encode())
            return str(body.get("id")) if isinstance(body, dict) else None
        parts = str(asked["link"]).strip("/").split("/")
        return parts[-1] if len(parts) == _DOCUMENT else None

    def _done(self, asked: JsonObject) -> JsonObject:
        """Do one operation; return what its callback gets."""
        kind, link, options = asked["kind"], asked["link"], asked["options"]
        if kind == "query":
            self._check_link(link, _COLLECTION)
            return self._queried(asked["query"], options)
        if kind in {"create", "upsert"}:
            self._check_link(link, _COLLECTION)
            body = decoded_object(asked["body"].encode())
            if "id" not in body and not options.get("disableAutomaticIdGeneration"):
                body["id"] = str(uuid.uuid4())
            return _value(self.write(kind, body.get("id", ""), body, options))
        name = self._name_of(link)
        if kind == "read":
            self._draft.take([name])
            found = self._draft.items.read(self._call.within, self._key, name)
            self.charge += charges.read(len(found.body))
            return _value(found)
        changed = decoded_object(asked["body"].encode()) if "body" in asked else None
        return _value(self.write(kind, name, changed, options))

    def write(
        self, kind: str, name: str, body: JsonObject | None, options: Mapping[str, Any]
    ) -> Item | None:
        """Write to the draft: create, upsert, replace, or delete."""
        items, container, key = self._draft.items, self._call.within, self._key
        etag = options.get("etag")
        conditions = Conditions(if_match=etag if isinstance(etag, str) else None)
        if isinstance(name, str):
            self._draft.take([name])
        acts: dict[str, Callable[[Any], Written]] = {
            "create": lambda tx: items.create(tx, container, key, body or {}),
            "upsert": lambda tx: items.upsert(tx, container, key, body or {}, conditions),
            "replace": lambda tx: items.replace(
                tx, container, key, name, change=replaced_by(body or {}), conditions=conditions
            ),
            "delete": lambda tx: items.delete(tx, container, key, name, conditions),
        }
        written = self._draft.write(acts[kind])
        self.charge += written.charge
        return written.item

    def _queried(self, query: Any, options: JsonObject) -> JsonObject:
        body = query if isinstance(query, dict) else {"query": query}
        size = options.get("pageSize", _DEFAULT_PAGE)
        limit = size if isinstance(size, int) and size > 0 else _LARGEST_PAGE
        page = queries.run(
            self._draft.rows,
            queries.parsed(body, now=self._emulator.clock(), budget=Budget(self._left())),
            limit=min(limit, _LARGEST_PAGE),
            continuation=options.get("continuation"),
        )
        self.charge += charges.query(page.looked_at, sum(map(len, page.results)))
        found = [msgspec.Raw(x) for x in page.results]
        more = {} if page.continuation is None else {"continuation": page.continuation}
        return {"value": found, "options": more}

    def _check_link(self, link: Any, parts: int) -> list[str]:
        """Return the parts of a link into this container, by names or by resource ids."""
        found = str(link).strip("/").split("/")
        container = self._call.within
        kinds = ["dbs", "colls", "docs"][: parts // 2]
        if (
            len(found) != parts
            or found[0::2] != kinds
            or found[3] not in {container.id, container.rid}
        ):
            raise bad_request(
                f"The link {str(link)[:100]!r} is not of this container. A link to it is "
                f"getSelfLink(), and one to an item its _self, or getAltLink() + '/docs/' + id."
            )
        return found

    def _name_of(self, link: Any) -> str:
        parts = self._check_link(link, _DOCUMENT)
        if parts[3] != self._call.within.rid:
            return parts[-1]
        number = rids.item_number(self._call.within.rid, parts[-1])
        name = None if number is None else self._draft.name_of(number)
        if name is None:
            raise CosmosError(404, f"There is no item {parts[-1]!r} of this partition key.")
        return name


async def execute_stored_procedure(emulator: Emulator, call: Call) -> Answer:
    """Run a stored procedure in one partition: all that it writes is one transaction."""
    script = emulator.scripts.named(call.within, ScriptKind.PROCEDURE, call.address.item)
    if len(call.body) > _LARGEST_REQUEST:
        raise CosmosError(413, "The parameters of a stored procedure may have 2 MB.")
    parameters = decoded(call.body) if call.body else []
    if not isinstance(parameters, list):
        raise bad_request('The parameters of a stored procedure are a JSON array: ["a", 1].')

    def run(scripting: Scripting) -> Answer:
        outcome = scripting.run(script, parameters=parameters, hasResponse=True)
        return Answer(body=_text(outcome.response), charge=scripting.charge)

    return await _transacted(emulator, call, run)


def has_triggers(call: Call) -> bool:
    """Return whether a request names triggers that run around it."""
    return bool(call.headers.get(_PRE) or call.headers.get(_POST))


async def write_with_triggers(emulator: Emulator, call: Call) -> Answer:
    """Write an item; the triggers that the request names run before and after it."""
    operation = _WRITES.get(call.operation)
    if operation is None:
        raise bad_request(
            f"{call.operation} runs no triggers: creating, replacing, upserting and deleting "
            f"an item do."
        )
    before = _triggers(emulator, call, _PRE, "Pre")
    after = _triggers(emulator, call, _POST, "Post")
    sent = None if operation == "Delete" else decoded_object(call.body)

    def run(scripting: Scripting) -> Answer:
        return _written(scripting, call, operation, sent, (before, after))

    return await _transacted(emulator, call, run)


def _written(
    scripting: Scripting,
    call: Call,
    operation: str,
    body: Any,
    triggers: tuple[list[Script], list[Script]],
) -> Answer:
    before, after = triggers
    for trigger in before:
        _check_operation(trigger, operation)
        body = scripting.run(trigger, operation=operation, request=body).request
    if operation != "Delete" and not isinstance(body, dict):
        raise failed("The trigger left no object as the body of the request.")
    name = call.address.item if len(call.address.ids) > 2 else str(body.get("id"))  # noqa: PLR2004
    options = {"etag": call.headers.get("If-Match")}
    item = scripting.write(operation.lower(), name, body, options)
    response: Any = None if item is None else item.value()
    for trigger in after:
        _check_operation(trigger, operation)
        response = scripting.run(
            trigger, operation=operation, request=body, hasResponse=True, response=response
        ).response
    status = {"Create": 201, "Delete": 204}.get(operation, 200)
    shown = b"" if item is None or not call.wants_body else _text(response)
    etag = {} if item is None else {"etag": item.etag}
    return Answer(status=status, body=shown, headers=etag, charge=scripting.charge)


def _triggers(emulator: Emulator, call: Call, header: str, kind: str) -> list[Script]:
    names = [x.strip() for x in call.headers.get(header, "").split(",") if x.strip()]
    found = [emulator.scripts.named(call.within, ScriptKind.TRIGGER, x) for x in names]
    for trigger in found:
        if trigger.definition.trigger_type != kind:
            raise bad_request(f"The trigger {trigger.id!r} is no {kind} trigger: see {header}.")
    return found


def _check_operation(trigger: Script, operation: str) -> None:
    wanted = trigger.definition.trigger_operation
    allowed = {"All", operation} | ({"Update"} if operation == "Replace" else set())
    if wanted not in allowed:
        raise bad_request(
            f"The trigger {trigger.id!r} is for {wanted}, and this request is a {operation}."
        )


HANDLERS: Final[dict[str, Handler]] = {"execute_stored_procedure": execute_stored_procedure}


async def _transacted(
    emulator: Emulator, call: Call, run: Callable[[Scripting], Answer]
) -> Answer:
    """Run scripts, and commit what they wrote; again while others write to the same items."""
    ask = asking(asyncio.get_running_loop())
    key = call.key()
    database = emulator.containers.database(call.address.database).id
    end = time.monotonic() + SECONDS

    def job(budget: Budget) -> Answer:
        draft = Draft(emulator, call.within, key, ask)
        try:
            scripting = Scripting(emulator, call, draft, budget, database)
            answer = run(scripting)
            held = draft.commit()
        finally:
            draft.close()
        ask(lambda: emulator.split_if_overgrown(held.pid))
        headers = {
            **item_headers(call, held, None),
            **answer.headers,
            **_log(call, scripting.log),
        }
        charge = round(max(answer.charge, charges.OTHER), 2)
        return Answer(status=answer.status, body=answer.body, headers=headers, charge=charge)

    while (left := end - time.monotonic()) > 0:
        budget = Budget(left)
        try:
            return await emulator.work.beside(budget, partial(job, budget))
        except DraftOutdated:
            continue
    raise CosmosError(
        449, "Others wrote to the items of the script, each time that it ran. Try it again."
    )


def _log(call: Call, log: str) -> dict[str, str]:
    wanted = call.headers.get("x-ms-documentdb-script-enable-logging", "").lower() == "true"
    if not wanted:
        return {}
    sent = quote(log, safe="")
    while len(sent) > _LARGEST_LOG:
        log = log[: len(log) * _LARGEST_LOG // len(sent) - 1]
        sent = quote(log, safe="")
    return {"x-ms-documentdb-script-log-results": sent}


def _body(text: str | None) -> Any:
    return None if text is None else decoded(text.encode())


def _text(value: Any) -> bytes:
    text = b"" if value is None else msgspec.json.encode(value)
    if len(text) > _LARGEST_RESPONSE:
        raise CosmosError(
            413, f"The script answers with {len(text):,} bytes, and 4 MB is the limit."
        )
    return text


def _value(item: Item | None) -> JsonObject:
    return {} if item is None else {"value": msgspec.Raw(item.body), "options": {}}
