"""Partial updates: the operations of a PATCH, applied to a copy of an item.

``add``, ``set``, ``replace``, ``remove``, ``incr`` and ``move``, at most ten, in order;
all or nothing. An id, the partition key and system properties cannot be patched.
"""

import copy
from collections.abc import Callable
from typing import Any, Final

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.items import SYSTEM_PROPERTIES
from cosmos_emulator.json_values import JsonObject

_MAX_OPERATIONS: Final = 10


def patched(item: JsonObject, operations: Any) -> JsonObject:
    """Return the item as the operations leave it; 400 if one of them cannot be applied."""
    if not isinstance(operations, list) or not 1 <= len(operations) <= _MAX_OPERATIONS:
        raise bad_request(f"A patch has between 1 and {_MAX_OPERATIONS} operations.")
    result = copy.deepcopy(item)
    for operation in operations:
        if not isinstance(operation, dict) or operation.get("op") not in list(_OPERATIONS):
            raise bad_request(
                f"{operation!r} is no patch operation; there are {', '.join(_OPERATIONS)}."
            )
        _OPERATIONS[operation["op"]](result, operation)
    return result


class _Place:
    """Where a path of a patch leads: a parent, and the name or position in it."""

    def __init__(self, item: JsonObject, path: Any) -> None:
        if not isinstance(path, str) or not path.startswith("/") or path == "/":
            raise bad_request(f"{path!r} is not a path of a patch, such as /address/zip.")
        *steps, last = [x.replace("~1", "/").replace("~0", "~") for x in path[1:].split("/")]
        if not steps and (last == "id" or last in SYSTEM_PROPERTIES):
            raise bad_request(f"{path} cannot be patched.")
        parent: Any = item
        for step in steps:
            parent = _inner(parent, step)
        if not isinstance(parent, dict | list):
            raise bad_request(f"{path} leads through something that is not there.")
        self.path = path
        self._parent: Any = parent
        self._last = last

    def there(self) -> bool:
        return _inner(self._parent, self._last) is not _NOTHING

    def get(self) -> Any:
        found = _inner(self._parent, self._last)
        if found is _NOTHING:
            raise bad_request(f"There is nothing at {self.path}.")
        return found

    def put(self, value: Any) -> None:
        """Replace what is there; an array is not made longer."""
        if isinstance(self._parent, list):
            self.get()
            self._parent[int(self._last)] = value
        else:
            self._parent[self._last] = value

    def insert(self, value: Any) -> None:
        """Like ``put``, but in an array what is there moves up; ``-`` is its end."""
        if isinstance(self._parent, dict):
            self._parent[self._last] = value
        elif self._last in {"-", str(len(self._parent))}:
            self._parent.append(value)
        else:
            self.get()
            self._parent.insert(int(self._last), value)

    def take(self) -> Any:
        found = self.get()
        del self._parent[self._last if isinstance(self._parent, dict) else int(self._last)]
        return found


_NOTHING: Final = object()


def _inner(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step, _NOTHING)
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    return _NOTHING


def _value(operation: JsonObject) -> Any:
    if "value" not in operation:
        raise bad_request(f"The operation {operation.get('op')!r} needs a value.")
    return operation["value"]


def _add(item: JsonObject, operation: JsonObject) -> None:
    _Place(item, operation.get("path")).insert(_value(operation))


def _set(item: JsonObject, operation: JsonObject) -> None:
    place = _Place(item, operation.get("path"))
    if place.there():
        place.put(_value(operation))
    else:
        place.insert(_value(operation))


def _replace(item: JsonObject, operation: JsonObject) -> None:
    place = _Place(item, operation.get("path"))
    place.get()
    place.put(_value(operation))


def _remove(item: JsonObject, operation: JsonObject) -> None:
    _Place(item, operation.get("path")).take()


def _incr(item: JsonObject, operation: JsonObject) -> None:
    place, by = _Place(item, operation.get("path")), _value(operation)
    now = place.get() if place.there() else 0
    for number in (now, by):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise bad_request(f"incr at {place.path} needs numbers, and found {number!r}.")
    place.put(now + by)


def _move(item: JsonObject, operation: JsonObject) -> None:
    moved = _Place(item, operation.get("from")).take()
    _Place(item, operation.get("path")).insert(moved)


_OPERATIONS: Final[dict[str, Callable[[JsonObject, JsonObject], None]]] = {
    "add": _add,
    "set": _set,
    "replace": _replace,
    "remove": _remove,
    "incr": _incr,
    "move": _move,
}


def check_condition(holds: bool) -> None:  # noqa: FBT001 - the word is the argument
    """Raise 412 unless the filter of a conditional patch let the item through."""
    if not holds:
        raise CosmosError(412, "The condition of the patch does not hold for this item.")
