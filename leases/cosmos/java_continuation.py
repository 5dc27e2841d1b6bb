"""Continuations as Java's change feed processor keeps them in its version 1 leases.

It is Base64 of a JSON state, in which the raw token of .NET is ``token``::

    {"V": 1, "Rid": …, "Mode": "INCREMENTAL", "StartFrom": {…}, "Continuation":
     {"V": 1, "Rid": …, "Continuation": [{"token": "\\"42\\"", "range": {…}}], "Range": {…}}}
"""

import base64
import binascii

import msgspec

from changefeed.runtime.errors import StoreRefused


class _Token(msgspec.Struct):
    token: str | None = None


class _Continuation(msgspec.Struct):
    tokens: list[_Token] = msgspec.field(name="Continuation")


class _State(msgspec.Struct):
    continuation: _Continuation | None = msgspec.field(name="Continuation", default=None)


def raw_token(text: str) -> str:
    """Return the raw token in Java's state; any other text is returned as it is."""
    state = _state(text)
    if state is None or state.continuation is None:
        return text
    tokens = [x.token for x in state.continuation.tokens]
    if len(tokens) != 1 or tokens[0] is None:
        raise StoreRefused(
            f"a lease of a Java processor has {len(tokens)} tokens in its continuation, and "
            "only one can be read: let that processor run until its splits are done"
        )
    return tokens[0]


def _state(text: str) -> _State | None:
    if text.startswith('"'):
        return None  # a raw token, which is in quotes
    try:
        state = msgspec.json.decode(base64.b64decode(text, validate=True), type=_State)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None
    return state
