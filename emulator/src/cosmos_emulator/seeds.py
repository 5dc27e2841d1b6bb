"""Seeds: what an account holds from the start, in JSON that people write.

A ``.json`` file is one document: ``{"databases": [{"id", "throughput"?, "containers": [{"id",
"partitionKey", …, "throughput"?, "items": […]}]}]}``. A ``.jsonl`` file has a line for each
resource: ``{"database", "throughput"?}``, ``{"database", "container": {…}, "throughput"?}`` or
``{"database", "container": id, "item": {…}}``. Of a directory all such files are
taken, by their names. A partition key may be said as its path alone.

All of it is stored, or nothing. An account that holds anything is left as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from cosmos_emulator.calls import Emulator
from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.items import Transaction
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.offers import Throughput, checked_throughput


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resource, and whose it is."""

    database: str
    container: str | JsonObject | None = None
    item: JsonObject | None = None
    throughput: int | None = None


class _Database(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str
    throughput: int | None = None
    containers: list[JsonObject] = []


class _Document(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    databases: list[_Database]


def plant(emulator: Emulator, seed: Path) -> None:
    """Fill an empty account, and let ``reset`` come back to that.

    Raises ``ValueError`` that names the file, and its line, for what cannot be stored.
    """
    if emulator.containers.databases():
        return
    with emulator.store.transaction():
        for file in _files(seed):
            for place, line in _lines(file):
                with _named(place):
                    _store(emulator, line)
    emulator.store.snapshot()


def _files(seed: Path) -> list[Path]:
    found = sorted(seed.iterdir()) if seed.is_dir() else [seed]
    files = [x for x in found if x.suffix in (".json", ".jsonl")]
    if not files:
        raise ValueError(f"{seed} is no seed: it is, or has, files of .json or .jsonl.")
    return files


def _lines(file: Path) -> Iterator[tuple[str, _Line]]:
    """Return every resource of a file, owners first, and where it stands."""
    if file.suffix == ".json":
        with _named(str(file)):
            document = msgspec.json.decode(file.read_bytes(), type=_Document)
            for line in _of_document(document):
                yield str(file), line
        return
    for number, text in enumerate(file.read_bytes().splitlines(), start=1):
        if text.strip():
            place = f"{file}, line {number}"
            with _named(place):
                yield place, msgspec.json.decode(text, type=_Line)


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Say of a mistake where it stands."""
    try:
        yield
    except CosmosError as error:
        raise ValueError(f"{place}: {error.message}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"{place}: {error}.") from error


def _of_document(document: _Document) -> Iterator[_Line]:
    for database in document.databases:
        yield _Line(database=database.id, throughput=database.throughput)
        for each in database.containers:
            definition = dict(each)
            units, items = definition.pop("throughput", None), definition.pop("items", [])
            whole = {"database": database.id, "container": definition, "throughput": units}
            yield msgspec.convert(whole, _Line)
            for item in msgspec.convert(items, list[JsonObject]):
                yield _Line(database=database.id, container=str(each.get("id")), item=item)


def _store(emulator: Emulator, line: _Line) -> None:
    units = None if line.throughput is None else checked_throughput(line.throughput)
    if isinstance(line.container, dict):
        _make_database(emulator, line.database, None)
        emulator.containers.create_container(line.database, _completed(line.container), units)
    elif line.item is None:
        _make_database(emulator, line.database, units)
    elif line.container is None:
        raise bad_request("An item has a container, by its id.")
    else:
        _put(emulator, line.database, line.container, line.item)


def _make_database(emulator: Emulator, name: str, throughput: Throughput | None) -> None:
    if name not in [x.id for x in emulator.containers.databases()]:
        emulator.containers.create_database({"id": name}, throughput)


def _completed(definition: JsonObject) -> JsonObject:
    """Return a definition whose partition key may have been said as paths alone."""
    key: Any = definition.get("partitionKey")
    if isinstance(key, str | list):
        paths = [key] if isinstance(key, str) else key
        kind = "Hash" if len(paths) == 1 else "MultiHash"
        return definition | {"partitionKey": {"paths": paths, "kind": kind, "version": 2}}
    return definition


def _put(emulator: Emulator, database: str, name: str, item: JsonObject) -> None:
    container = emulator.containers.container(database, name)
    key = container.keys.in_item(item)
    emulator.items.create(Transaction(emulator.ranges), container, key, item)
