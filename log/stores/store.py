"""What a cluster needs of an object store: the contract. One file for each kind beside it.

``create`` and ``replace`` decide every race in a cluster. Of any number of callers that create
an object, for ever, one gets ``True``; of those that replace one version of it, one. All the
rest may be late or repeated without harm: a listing may lack what was created a moment ago.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol

MISSING: Final = ""
"""The version of an object that is not there."""


class Listed(NamedTuple):
    """An object in a listing. ``size`` is in bytes."""

    key: str
    size: int


class Versioned(NamedTuple):
    """An object as it was at one moment. ``version`` is a text that only its store reads."""

    data: bytes
    version: str


def version_of(data: bytes) -> str:
    """Return the version of an object in a store that has none of its own."""
    return blake2b(data, digest_size=16).hexdigest()


class ObjectStore(Protocol):
    """A place in an object store. Keys are relative to it: names with slashes between.

    Every method raises ``StoreUnavailable`` when it may be asked again, and ``StoreRefused``
    when it says that this may not be. Stores of clouds say so in passing, too, while keys are
    renewed or rights spread: so a refusal ends a start, and a broker that runs asks again.
    Many tasks may call at once.
    """

    async def create(self, key: str, data: bytes) -> bool:
        """Write an object if there is none of this name. Return whether it did.

        Once it has returned ``True`` the object is whole, durable, and readable by all.
        After ``StoreError`` it may exist, or come into being later.
        """
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Write an object, in the place of one that may be there."""
        ...

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        """Write an object in the place of this version of it; return the version that it has.

        ``None``, and nothing is written, if it is of another version by now. It is durable,
        and readable by all, as what ``create`` writes. ``MISSING``: if there is none.
        """
        ...

    async def newer(self, key: str, version: str) -> Versioned | None:
        """Return an object as it is now; ``None`` if it is of this version still.

        One that is not there has no data, and is of the version ``MISSING``.
        """
        ...

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        """Return an object, or its bytes from ``start`` up to, without, ``end``.

        ``None`` if there is no such object. Less where the object is shorter.
        """
        ...

    async def written_at(self, key: str) -> float | None:
        """Return when an object was written, in seconds by the store's own clock.

        ``None`` if there is none. Only differences between two objects mean anything.
        """
        ...

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        """Return the objects whose keys begin with a prefix, in the order of their keys.

        Only those whose keys are greater than ``after``. What was created or deleted a
        moment ago may be missing or still there. ``prefix`` is empty or ends in a slash.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; what is not there is none that failed."""
        ...


async def holds(store: ObjectStore, key: str, data: bytes) -> bool | None:
    """Whether the object of a name is this one; ``None`` if there is none.

    So the answer to a ``create`` that was lost is found out. Nobody else writes these bytes.
    """
    there = await store.get(key)
    return None if there is None else there == data


async def create_once(store: ObjectStore, key: str, data: bytes) -> bool | None:
    """Create an object, which an earlier call may have done; return what ``holds`` does.

    ``None``: the store says that there is one, and has none.
    """
    return True if await store.create(key, data) else await holds(store, key, data)
