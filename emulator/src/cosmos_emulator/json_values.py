"""Values of JSON, the one that is none of them, and the way to a value inside another."""

import enum
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from cosmos_emulator import binary_json
from cosmos_emulator.errors import bad_request

JsonObject = dict[str, Any]


class Undefined(enum.Enum):
    """The value of a property that is missing. It is not null."""

    UNDEFINED = "undefined"

    def __bool__(self) -> Literal[False]:
        return False


UNDEFINED: Final = Undefined.UNDEFINED


def decoded(text: bytes) -> Any:
    """Parse JSON that came over the wire, as text or in binary form; 400 if it is none."""
    if text.startswith(binary_json.PREAMBLE):
        return binary_json.value_of(text)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"The request body is not valid JSON: {error}.") from error


def decoded_object(text: bytes) -> JsonObject:
    value = decoded(text)
    if not isinstance(value, dict):
        raise bad_request("The request body must be a JSON object.")
    return value


def value_at(value: Any, steps: Sequence[str | int]) -> Any:
    """Follow property names and array positions; ``UNDEFINED`` where there is nothing."""
    for step in steps:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, UNDEFINED)
        elif isinstance(value, list) and type(step) is int and 0 <= step < len(value):
            value = value[step]
        else:
            return UNDEFINED
    return value
