"""Dead letters in a container of Cosmos DB: any number of hosts, anywhere.

One item for each letter, with fields a person can read; ``letter`` is the whole as a text,
since numbers of more than 53 bits do not survive in items. The container, which is created
if it is not there and the key allows it, is partitioned by ``/id``.

An item takes 2 MB, and the feed may deliver changes that are as large. The text of a larger
letter lies in items of its own, which are written first: the letter's item names them, and
is there once they are. They have the digest of the text in their names, so that two hosts that
put one letter aside never mix their texts.

Limits: what a killed host has written of a larger letter before its item stays, unless that
letter is put with the same text again.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import msgspec
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceExistsError, CosmosResourceNotFoundError

from changefeed.feeds.cosmos.address import (
    AddressWrong,
    CosmosAccess,
    CosmosAddress,
    account_of,
    read_address,
)
from changefeed.feeds.cosmos.client import client_of, lease_options
from changefeed.feeds.cosmos.errors import Translator
from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterId,
    check_same_change,
    in_order,
    no_letters,
)
from changefeed.observers.errors import DeadLettersRefused, DeadLettersUnavailable

_PREFIX = "dead-letter."
_PART_PREFIX = "dead-letter-part."
_LONGEST = 400_000  # characters of one item's text: under 2 MB, however long each is in UTF-8
_ALL = "SELECT * FROM c WHERE STARTSWITH(c.id, @begin)"
_ADVICE = {
    401: "the key is wrong: check CHANGEFEED_COSMOS__KEY",
    403: "this identity may not do that; databases and containers are created with a key only",
    404: "there is no such database or container; create the container with /id as its "
    "partition key, or let it be created with a key",
}

_decoder = msgspec.json.Decoder(DeadLetter)
_opening = Translator(
    unavailable=lambda text, _: DeadLettersUnavailable(text),
    refused=DeadLettersRefused,
    advice=_ADVICE,
)
_calls = Translator(unavailable=lambda text, _: OSError(text), refused=OSError, advice=_ADVICE)


class CosmosDeadLetters:
    """Letters in one container; ``open_cosmos`` makes it."""

    def __init__(self, proxy: ContainerProxy, where: str) -> None:
        self._proxy = proxy
        self._where = f"dead letters in {where}"

    async def put(self, letter: DeadLetter) -> None:
        while not await self._created(letter):
            kept = await self.get(letter.id)
            if kept is not None:  # else it was removed in between
                return check_same_change(letter, kept, self._where)
        return None

    async def _created(self, letter: DeadLetter) -> bool:
        text = msgspec.json.encode(letter).decode()
        parts = _Parts.of(text) if len(text) > _LONGEST else None
        item = _item(letter) | ({"letter": text} if parts is None else parts.named)
        with _calls.errors(self._where):
            for name, part in () if parts is None else parts.divide(text):
                await self._proxy.upsert_item({"id": name, "part": part})
            try:
                await self._proxy.create_item(item)
            except CosmosResourceExistsError:
                return False
        return True

    async def _read(self, item: dict[str, Any]) -> DeadLetter | None:
        """Return the letter of an item; ``None`` if it is being removed."""
        parts = _Parts.in_item(item)
        if parts is None:
            return _decoder.decode(item["letter"])
        try:
            found = [(await self._proxy.read_item(x, x))["part"] for x in parts.names]
        except CosmosResourceNotFoundError:
            return None
        return _decoder.decode("".join(found))

    async def list(self) -> Sequence[DeadLetter]:
        parameters: list[dict[str, object]] = [{"name": "@begin", "value": _PREFIX}]
        with _calls.errors(self._where):
            found = self._proxy.query_items(_ALL, parameters=parameters)
            letters = [await self._read(x) async for x in found]
        return sorted((x for x in letters if x is not None), key=in_order)

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        name = _name(letter_id)
        with _calls.errors(self._where):
            try:
                item = await self._proxy.read_item(name, name)
            except CosmosResourceNotFoundError:
                return None
            return await self._read(item)

    async def remove(self, letter_id: LetterId) -> bool:
        name = _name(letter_id)
        with _calls.errors(self._where):
            try:
                item = await self._proxy.read_item(name, name)
                await self._proxy.delete_item(name, name)
            except CosmosResourceNotFoundError:
                return False
            parts = _Parts.in_item(item)
            for part in () if parts is None else parts.names:
                with suppress(CosmosResourceNotFoundError):
                    await self._proxy.delete_item(part, part)
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The items that have the text of a larger letter."""

    digest: str
    count: int

    @classmethod
    def of(cls, text: str) -> "_Parts":
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(digest=digest, count=-(-len(text) // _LONGEST))

    @classmethod
    def in_item(cls, item: dict[str, Any]) -> "_Parts | None":
        """Return what a letter's item names; ``None`` where it has the text itself."""
        if "parts" not in item:
            return None
        return cls(digest=item["digest"], count=item["parts"])

    @property
    def named(self) -> dict[str, Any]:
        return {"digest": self.digest, "parts": self.count}

    @property
    def names(self) -> Sequence[str]:
        return [f"{_PART_PREFIX}{self.digest}.{n}" for n in range(self.count)]

    def divide(self, text: str) -> Iterable[tuple[str, str]]:
        """Yield the name and the text of each."""
        for n, name in enumerate(self.names):
            yield name, text[n * _LONGEST : (n + 1) * _LONGEST]


@asynccontextmanager
async def open_cosmos(
    scheme: str, place: str, access: CosmosAccess, *, must_exist: bool = False
) -> AsyncIterator[CosmosDeadLetters]:
    """Open ``//HOST/DATABASE/CONTAINER``, which is made unless it ``must_exist``.

    Raise ``DeadLettersUnavailable`` if no answer came, ``DeadLettersRefused`` if it cannot be.
    """
    try:
        address = read_address(scheme, place, known=())
        account = account_of(address, access)
    except AddressWrong as error:
        raise DeadLettersRefused(str(error)) from error
    manager = client_of(account, **lease_options(account))
    with _opening.errors(str(address)):
        client = await manager.__aenter__()
    try:
        with _opening.errors(str(address)):
            proxy = await _container(client, address, must_exist=must_exist)
        yield CosmosDeadLetters(proxy, str(address))
    finally:
        await manager.__aexit__(None, None, None)


async def _container(
    client: CosmosClient, address: CosmosAddress, *, must_exist: bool
) -> ContainerProxy:
    """Return the container, which is created if it is not there."""
    database = client.get_database_client(address.database)
    proxy = database.get_container_client(address.container)
    try:
        await proxy.read()
    except CosmosResourceNotFoundError:
        if must_exist:
            raise no_letters(str(address)) from None
        with suppress(CosmosResourceExistsError):
            await client.create_database(address.database)
        with suppress(CosmosResourceExistsError):
            await database.create_container(address.container, PartitionKey("/id"))
    return proxy


def _name(letter_id: LetterId) -> str:
    """Return the id of a letter's item, which may hold any text and be long."""
    return f"{_PREFIX}{hashlib.sha256(letter_id.encode()).hexdigest()}"


def _item(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": _name(letter.id),
        "letterId": letter.id,
        "range": letter.range_id,
        "key": letter.key,
        "operation": letter.change.operation.value,
        "error": letter.failure.kind,
        "text": letter.failure.text,
        "attempts": letter.attempts,
        "host": letter.host,
        "failedAt": letter.failed_at.isoformat(),
    }
