"""Where records are kept: the contract that one writer wins by, and all that a backend writes.

A record is a key of some kind, with a JSON body that is written as a whole, and a position that
a listing leaves out. What is in it, and what a refused write means, is told in one place above
(``changefeed.leases.stored``); a store only keeps it, and lets exactly one writer win.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

MAX_BODY = 1_000_000
"""Bytes of a body that every store takes, with an escape for all that is not ASCII. An item of
Cosmos DB has 2 MB; HTTP clients want larger bodies as streams.
"""
WHOLE = ""
"""The token before the first: everything has been written since."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``kind`` is a word in small letters; ``key``, ``position`` may be any text, and long.
    ``body`` is a JSON object of up to ``MAX_BODY``.

    ``position`` is ``None`` in a listing, and where none was ever written; a write without one
    leaves the stored one alone. ``version`` is the store's, empty before the first write.
    """

    kind: str
    key: str
    body: bytes
    position: str | None = None
    version: str = ""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """``total`` is how many records of the kinds there are, ``None`` if that is not known.

    ``token`` is where the next listing begins; ``WHOLE`` where all are to be listed again.
    ``put`` is the record that was given to be written, as it is stored; ``None`` if it was
    refused, or none was given.
    """

    records: Sequence[Record]
    total: int | None
    token: str
    put: Record | None = None


class Store(ABC):
    """Keeps records. It is open as long as the block lasts that ``StoreBackend.open_store``
    makes. Many tasks of a process ask at once, and many processes. Every call may raise
    ``StoreUnavailable``: then a write may have happened, or may happen yet; and
    ``StoreRefused``, with advice, where asking again cannot help.

    Each write gives a version that was never used before, not for a record that was deleted and
    inserted again either, nor after the store lost its last writes. A store whose client sends
    a request again by itself knows its own write when it finds it.
    """

    @abstractmethod
    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        """Return the records of these kinds without their positions: all of them, or those that
        were written since the token was given, and perhaps more.

        ``put`` is of one of the kinds; it is written first, as by ``put()``, in the same
        request where the store can, and is among the records then.
        """

    @abstractmethod
    async def get(self, kind: str, key: str) -> Record | None:
        """Return one record whole, or ``None`` if there is none."""

    @abstractmethod
    async def put(self, record: Record) -> Record | None:
        """Write it, if its version is unchanged; one without a version is inserted.

        Return it whole as stored, with its new version; ``None`` if the version has moved on,
        or there is (for an insert) or is not (for an update) such a record. Any text may come
        as a version.
        """

    @abstractmethod
    async def delete(self, kind: str, key: str, version: str) -> bool:
        """Delete it, if its version is unchanged, and say whether that is so."""


def written_over(stored: Record | None, record: Record) -> Record | None:
    """Return what is to be stored, still without its new version, where a store can look
    and write with nothing in between. ``None`` if the write is refused.
    """
    if record.version != ("" if stored is None else stored.version):
        return None
    if record.position is None and stored is not None:
        return replace(record, position=stored.position)
    return record


_WITH_POSITION = "+"


def version_of(etag: str, position: str | None) -> str:
    """Return the version of a store that writes records whole: it says whether there is a
    position, so that only a write over one has to read it.
    """
    assert etag, "what is stored has a version"
    assert not etag.endswith(_WITH_POSITION), f"{etag} would say that there is a position"
    return etag if position is None else etag + _WITH_POSITION


def etag_of(version: str) -> str:
    return version.removesuffix(_WITH_POSITION)


async def with_position(store: "Store", record: Record) -> Record | None:
    """Return a record with the position that is stored in its version, if it carries none.
    ``None`` if that version has moved on.
    """
    if record.position is not None or etag_of(record.version) == record.version:
        return record
    return written_over(await store.get(record.kind, record.key), record)


def short_key(text: str, longest: int) -> str:
    """Return a key no longer than ``longest`` characters: the text itself, where it fits."""
    if len(text) <= longest:
        return text
    short = f"sha256-{hashlib.sha256(text.encode()).hexdigest()}"
    assert len(short) < len(text) or longest == 0, f"{short} is no shorter than {text!r}"
    return short
