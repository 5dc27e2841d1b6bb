"""Records as metadata of blobs, so that one listing reads them all.

What the Event Hubs SDKs know is kept under their names (``ownerid``; ``offset`` and
``sequencenumber``), what we need beyond in ``changefeed``: the record as JSON. Metadata
travels in HTTP headers, so both are percent-encoded where they are more than plain ASCII.
A record too long for headers (8 KiB) is in the blob's content, and ``changefeed`` says so.

A blob that such an SDK wrote has lost ``changefeed``, or never had it. It is read for what
it says. Its last write counts as the beginning of an epoch (in seconds since 1970), so that
an epoch never goes down when such processors and our hosts take turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic
from urllib.parse import quote, unquote

import msgspec

from changefeed.feeds.feed import Continuation, FeedRange, RangeId
from changefeed.leases.errors import ContainerRefused
from changefeed.leases.lease import Checkpoint, HostName, Lease, Member
from changefeed.leases.tables import Record

LONGEST = 6000
_OURS = "changefeed"
_IN_CONTENT = "content"
_JSON_SAFE = "{}[]:,\"'_-.~!*()$&+=/@;"
_TEXT_SAFE = '_-.~!*()$&+=/@;:,{}[]"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What a blob holds: its metadata, and its content if the record is too long for them."""

    metadata: Mapping[str, str]
    content: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A blob as it was listed. ``written`` is when it was last written, since 1970."""

    name: str
    metadata: Mapping[str, str]
    written: float

    @property
    def content_needed(self) -> bool:
        return self.metadata.get(_OURS) == _IN_CONTENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Record]):
    """One kind of record: the folder of its blobs, and how others would read and write it."""

    folder: str
    form: type[Record]

    def write(self, record: Record) -> Stored:
        fields = msgspec.to_builtins(record)
        del fields["version"]
        text = msgspec.json.encode(fields)
        theirs = _for_others(record)
        ours = quote(text.decode(), safe=_JSON_SAFE)
        if len(ours) + sum(map(len, theirs.values())) <= LONGEST:
            return Stored(metadata={**theirs, _OURS: ours})
        shortened = {name: value[: LONGEST // 4] for name, value in theirs.items()}
        assert sum(map(len, shortened.values())) <= LONGEST, f"{shortened} fits into no headers"
        return Stored(metadata={**shortened, _OURS: _IN_CONTENT}, content=text)

    def read(self, found: Found, content: bytes = b"") -> Record:
        """Raise ``ContainerRefused`` for a blob that is none of these records."""
        ours = found.metadata.get(_OURS)
        try:
            if ours is None:
                theirs: Record = _of_others(self.form, found)
                return theirs
            text = content if ours == _IN_CONTENT else unquote(ours).encode()
            record: Record = msgspec.json.decode(text, type=self.form)
        except (msgspec.DecodeError, KeyError) as error:
            raise ContainerRefused(
                f"{found.name} is no record of leases ({error}): give this fleet a prefix of "
                "its own"
            ) from error
        return record


def _for_others(record: Lease | Checkpoint | Member) -> Mapping[str, str]:
    """Return what the Event Hubs SDKs read. Our positions are opaque: they are offsets."""
    if isinstance(record, Lease):
        return {"ownerid": quote(record.owner or "", safe=_TEXT_SAFE)}
    if isinstance(record, Checkpoint):
        number = record.continuation if _is_number(record.continuation) else "0"
        offset = quote(record.continuation, safe=_TEXT_SAFE)
        return {"offset": offset, "sequencenumber": number}
    return {}


def _of_others(form: type[Record], found: Found) -> Any:
    partition = RangeId(found.name.rpartition("/")[2])
    if form is Lease:
        owner = unquote(
            found.metadata.get("ownerid", "")
        )  # released: services drop an empty one
        return Lease(
            range=FeedRange(id=partition),
            owner=HostName(owner) if owner else None,
            epoch=int(found.written),
            stamp=found.written,
        )
    if form is Checkpoint:
        offset = unquote(found.metadata["offset"])
        return Checkpoint(
            range_id=partition, continuation=Continuation(offset), epoch=int(found.written)
        )
    raise KeyError(_OURS)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(2**63)) - 1
