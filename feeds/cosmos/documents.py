"""An answer of Cosmos DB, cut into its documents without a look into them."""

import json
import re
from typing import Any, Final

import msgspec

_FIRST: Final = re.compile(r'"Documents"\s*:\s*\[\s*')
_BETWEEN: Final = ", \t\r\n"
_SCANNER: Final = json.JSONDecoder()


class Documents(msgspec.Struct, frozen=True, gc=False):
    """The documents of an answer, each as its JSON, and of which container they are."""

    documents: list[msgspec.Raw] = msgspec.field(name="Documents")
    container_rid: str = msgspec.field(name="_rid", default="")


_DOCUMENTS: Final = msgspec.json.Decoder(Documents)


def documents_of(body: bytes) -> Documents:
    """Cut an answer. Raise ``msgspec.DecodeError`` or ``RecursionError`` for what is none.

    The JSON of a document may be one that msgspec does not take: with half a surrogate pair.
    """
    try:
        return _DOCUMENTS.decode(body)
    except msgspec.DecodeError as error:
        text = body.decode("utf-8", "surrogateescape")
        try:
            whole: Any = json.loads(text)
        except ValueError:
            raise error from None
        if not isinstance(whole, dict) or not isinstance(whole.get("Documents"), list):
            raise
        return Documents(_cut(text, len(whole["Documents"])), str(whole.get("_rid", "")))


def _cut(text: str, count: int) -> list[msgspec.Raw]:
    found = _FIRST.search(text)
    assert found is not None, "it was parsed, and has documents"
    at, documents = found.end(), list[msgspec.Raw]()
    for _ in range(count):
        _, end = _SCANNER.raw_decode(text, at)
        documents.append(msgspec.Raw(text[at:end].encode("utf-8", "surrogateescape")))
        at = _at_next(text, end)
    return documents


def _at_next(text: str, at: int) -> int:
    while text[at] in _BETWEEN:
        at += 1
    return at
