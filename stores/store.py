"""Where records are kept: the contract that one writer wins by, and all that a backend writes;
and the bounds within which a host asks it.

A record is a key of some kind, with a JSON body that is written as a whole, and a position that
a listing leaves out. What is in it, and what a refused write means, is told in one place above
(``changefeed.leases.stored``); a store only keeps it, and lets exactly one writer win.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from changefeed.runtime.calls import Patience, in_time
from changefeed.runtime.clock import Clock, elapsed_time
from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.kinds import CHECKPOINTS, LEASES, OWNERSHIP

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


T = TypeVar("T")
_MAX_REST = 10  # expirations
_OF_LEASES = (LEASES, OWNERSHIP, CHECKPOINTS)


@dataclass(slots=True)
class _Failures:
    """When calls began to fail, and when one last did."""

    since: float
    last: float


class CallLimits:
    """How one host asks its stores. Times are in seconds, on ``clock``.

    No call takes longer than ``timeout``. One that ran out of time, or that its client gave up,
    raises ``StoreUnavailable``: a write may have happened. So does one that the server refuses,
    as long as there is ``patience`` for it. ``on_call`` gets the name of each call, for the
    metrics. ``when_failing`` is called once leases cannot be written, with the last error and
    the expiration. A host that lists leases and cannot write them keeps nothing that the plan
    gives it, and would look alive by its heartbeats for ever.
    """

    def __init__(
        self,
        *,
        timeout: float,
        on_call: Callable[[str], None] = lambda _: None,
        patience: Patience | None = None,
        expiration: float = inf,
        clock: Clock = elapsed_time,
        when_failing: Callable[[StoreUnavailable, float], None] = lambda *_: None,
    ) -> None:
        self.timeout = timeout
        self.expiration = expiration
        self._on_call = on_call
        self._patience = patience or Patience(0)
        self._clock = clock
        self._when_failing = when_failing
        self._failures = dict[str, _Failures]()

    @property
    def failing(self) -> bool:
        """Whether leases, or a part of them, cannot be written: there were only failures for an
        expiration.

        After some time without another failure, more after each try, it is worth a try again:
        the host may have had nothing to write meanwhile.
        """
        return any(map(self._are_lasting, self._failures.values()))

    def _are_lasting(self, failures: _Failures) -> bool:
        lasted = failures.last - failures.since
        longest = min(lasted, _MAX_REST * self.expiration)
        return lasted >= self.expiration and self._clock() - failures.last < longest

    async def ask(
        self, name: str, call: Awaitable[T], *, kind: str = "", writes: bool = False
    ) -> T:
        """Await a call. One about a kind of leases counts where it fails, and one that also
        ``writes`` where it got through; what was refused says nothing of that.
        """
        self._on_call(name)
        try:
            asked = in_time(
                call, self.timeout, who="the store", name=name, unavailable=StoreUnavailable
            )
            answer = await self._patience.ask(name, asked, StoreUnavailable)
        except StoreUnavailable as error:
            if kind in _OF_LEASES:
                self._failed(kind, error)
            raise
        if writes and answer is not None:
            self._failures.pop(kind, None)
        return answer

    def _failed(self, kind: str, error: StoreUnavailable) -> None:
        was_failing, now = self.failing, self._clock()
        self._failures.setdefault(kind, _Failures(since=now, last=now)).last = now
        if self.failing and not was_failing:
            self._when_failing(error, self.expiration)


class BoundedStore(Store):
    """Wraps a store: each of its methods is asked within bounds. What no store may answer is
    asserted here, for each that a host runs over.
    """

    def __init__(self, store: Store, bounds: CallLimits) -> None:
        self._store = store
        self._bounds = bounds

    async def list(
        self, kinds: Collection[str], since: str = WHOLE, put: Record | None = None
    ) -> Listed:
        listed = await self._bounds.ask("list", self._store.list(kinds, since, put))
        for x in listed.records:
            assert x.kind in kinds, f"{x.kind} {x.key!r} was listed among {kinds}"
            assert x.position is None, f"{x.kind} {x.key!r} was listed with its position"
        assert put is not None or listed.put is None, f"{listed.put} was written by nobody"
        return listed

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._bounds.ask("get", self._store.get(kind, key), kind=kind)
        assert found is None or (found.kind, found.key) == (kind, key), (
            f"{found} was answered for {kind} {key!r}"
        )
        return found

    async def put(self, record: Record) -> Record | None:
        written = await self._bounds.ask(
            "put", self._store.put(record), kind=record.kind, writes=True
        )
        if written is not None:
            name = f"{record.kind} {record.key!r}"
            assert (written.kind, written.key) == (record.kind, record.key), (
                f"{name}: {written}"
            )
            assert written.version not in ("", record.version), f"{name}: its version stays"
            assert record.position in (None, written.position), f"{name}: at another position"
        return written

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await self._bounds.ask("delete", self._store.delete(kind, key, version))
