"""Records as metadata of blobs, so that one listing reads them all.

What the Event Hubs SDKs know is kept under their names (``ownerid``; ``offset`` and
``sequencenumber``), what we need beyond in ``changefeed``: key, body and position as JSON.
Metadata travels in HTTP headers, so both are percent-encoded where they are more than plain
ASCII. A record too long for headers (8 KiB) is in the blob's content, and ``changefeed`` says
so.

A blob that such an SDK wrote has lost ``changefeed``, or never had it. It is read for what
it says. Its last write counts as the beginning of an epoch (in seconds since 1970), so that
an epoch never goes down when such processors and our hosts take turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from changefeed.runtime.errors import StoreRefused
from changefeed.stores.kinds import CHECKPOINTS, OWNERSHIP
from changefeed.stores.store import Record

MAX_METADATA = 6000
_OURS = "changefeed"
_IN_CONTENT = "content"
_JSON_SAFE = "{}[]:,\"'_-.~!*()$&+=/@;"
_TEXT_SAFE = '_-.~!*()$&+=/@;:,{}[]"'


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobContent:
    """What a blob holds: its metadata, and its content if the record is too long for them."""

    metadata: Mapping[str, str]
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedBlob:
    """A blob as it was listed. ``written`` is when it was last written, since 1970."""

    name: str
    metadata: Mapping[str, str]
    written: float

    @property
    def content_needed(self) -> bool:
        return self.metadata.get(_OURS) == _IN_CONTENT


class _RecordMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    body: msgspec.Raw
    position: str | None = None


def stored(record: Record) -> BlobContent:
    """Return how a record lies in its blob."""
    ours = _RecordMetadata(record.key, msgspec.Raw(record.body), record.position)
    text = msgspec.json.encode(ours)
    quoted = quote(text.decode(), safe=_JSON_SAFE)
    theirs = _for_others(record)
    if len(quoted) + sum(map(len, theirs.values())) <= MAX_METADATA:
        return BlobContent(metadata={**theirs, _OURS: quoted})
    shortened = {name: value[: MAX_METADATA // 4] for name, value in theirs.items()}
    assert sum(map(len, shortened.values())) <= MAX_METADATA, (
        f"{shortened} fits into no headers"
    )
    return BlobContent(metadata={**shortened, _OURS: _IN_CONTENT}, content=text)


def record_in(kind: str, found: ListedBlob, content: bytes = b"") -> Record:
    """Raise ``StoreRefused`` for a blob that is none of these records."""
    text = found.metadata.get(_OURS)
    try:
        if text is None:
            return _of_others(kind, found)
        encoded = content if text == _IN_CONTENT else unquote(text).encode()
        assert encoded or not found.content_needed, f"{found.name} was read without its content"
        ours = msgspec.json.decode(encoded, type=_RecordMetadata)
    except (msgspec.DecodeError, KeyError) as error:
        raise StoreRefused(
            f"{found.name} is not a record of leases ({error}): give this fleet a prefix of "
            "its own"
        ) from error
    return Record(kind=kind, key=ours.key, body=bytes(ours.body), position=ours.position)


def _for_others(record: Record) -> Mapping[str, str]:
    """Return what the Event Hubs SDKs read. Our positions are opaque: they are offsets."""
    if record.kind == OWNERSHIP:
        owner = msgspec.json.decode(record.body).get("owner")
        return {"ownerid": quote(owner or "", safe=_TEXT_SAFE)}
    if record.kind == CHECKPOINTS:
        position = record.position or ""
        number = position if _is_number(position) else "0"
        return {"offset": quote(position, safe=_TEXT_SAFE), "sequencenumber": number}
    return {}


def _of_others(kind: str, found: ListedBlob) -> Record:
    partition = found.name.rpartition("/")[2]
    epoch = int(found.written)
    if kind == OWNERSHIP:
        # One that was released: services drop an empty owner.
        owner = unquote(found.metadata.get("ownerid", "")) or None
        body: Any = {"range": {"id": partition}, "owner": owner, "epoch": epoch}
        body["stamp"] = found.written
        return Record(kind=kind, key=partition, body=msgspec.json.encode(body))
    if kind == CHECKPOINTS:
        body = msgspec.json.encode({"epoch": epoch})
        offset = unquote(found.metadata["offset"])
        return Record(kind=kind, key=partition, body=body, position=offset)
    raise KeyError(_OURS)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**63)) - 1
