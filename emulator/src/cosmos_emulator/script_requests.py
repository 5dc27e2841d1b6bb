"""Answers about stored procedures, triggers and user-defined functions."""

from collections.abc import Awaitable
from functools import partial
from typing import Final

import msgspec

from cosmos_emulator.calls import Answer, Call, Emulator, Handler
from cosmos_emulator.json_values import decoded_object
from cosmos_emulator.resources import listed, queried
from cosmos_emulator.scripts import Script, ScriptKind


def _list(kind: ScriptKind, emulator: Emulator, call: Call) -> Answer:
    found = emulator.scripts.all(call.within, kind)
    return listed(call, call.within.rid, kind.listed, [x.resource() for x in found])


def _query(kind: ScriptKind, emulator: Emulator, call: Call) -> Awaitable[Answer]:
    found = [x.resource() for x in emulator.scripts.all(call.within, kind)]
    return queried(emulator, call, call.within.rid, kind.listed, found)


def _create(kind: ScriptKind, emulator: Emulator, call: Call) -> Answer:
    made = emulator.scripts.put(call.within, kind, decoded_object(call.body), None)
    return _answer(made, 201)


def _read(kind: ScriptKind, emulator: Emulator, call: Call) -> Answer:
    return _answer(_named(kind, emulator, call))


def _replace(kind: ScriptKind, emulator: Emulator, call: Call) -> Answer:
    old = _named(kind, emulator, call)
    call.conditions.check_write(old.etag)
    return _answer(emulator.scripts.put(call.within, kind, decoded_object(call.body), old))


def _delete(kind: ScriptKind, emulator: Emulator, call: Call) -> Answer:
    found = _named(kind, emulator, call)
    call.conditions.check_write(found.etag)
    emulator.scripts.delete(found)
    return Answer(status=204)


HANDLERS: Final[dict[str, Handler]] = {
    f"{verb}_{noun}": partial(handler, kind)
    for kind in ScriptKind
    for verb, noun, handler in (
        ("list", f"{kind.noun}s", _list),
        ("query", f"{kind.noun}s", _query),
        ("create", kind.noun, _create),
        ("read", kind.noun, _read),
        ("replace", kind.noun, _replace),
        ("delete", kind.noun, _delete),
    )
}


def _named(kind: ScriptKind, emulator: Emulator, call: Call) -> Script:
    return emulator.scripts.named(call.within, kind, call.address.item)


def _answer(script: Script, status: int = 200) -> Answer:
    body = msgspec.json.encode(script.resource())
    return Answer(status=status, body=body, headers={"etag": script.etag})
