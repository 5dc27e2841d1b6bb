"""Keeps a vector of the text of each item, for a search by meaning.

What it does that a first attempt does not:

* A text that has not changed costs nothing: a hash of it is kept beside the vector.
* Of each item, only the newest state in a batch is embedded.
* Vectors are written before the checkpoint, and only over older states. So after a crash some
  are made again, and none is lost, or put back by a host that has lost its lease.
* An item whose text the model refuses is a failing change: it goes to the dead letters, and the
  others of its batch are done.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from changefeed import Change, CloseReason, Context, Operation
from samples.vectors.embedding import Embedding
from samples.vectors.models import HttpModel, LocalModel, Model
from samples.vectors.store import Row, VectorStore

_log = logging.getLogger("vectors")


class VectorIndex:
    """``model`` is ``local``, or the address of OpenAI's API, with ``model_name`` and the file
    of a key. With ``dry_run`` nothing is embedded or written: ``close`` says what would be.
    """

    def __init__(
        self,
        *,
        database: str = "data/vectors.db",
        field: str = "text",
        model: str = "local",
        model_name: str = "text-embedding-3-small",
        key_file: str = "",
        at_once: int = 4,
        dry_run: bool = False,
    ) -> None:
        self._store = VectorStore(Path(database))
        self._field = field
        self._address = model
        self._key = Path(key_file).read_text("utf-8").strip() if key_file else ""
        self._name = LocalModel.name if model == "local" else model_name
        self._local = LocalModel() if model == "local" and not dry_run else None
        self._at_once = asyncio.Semaphore(at_once)
        self._dry_run = dry_run
        self._counts = Counter[str]()

    async def open(self, _context: Context) -> None:
        self._model: Model | None = self._local
        if self._local is None and not self._dry_run:
            self._model = HttpModel(self._address, self._name, self._key)

    async def close(self, context: Context, _reason: CloseReason) -> None:
        if self._model is not None:
            await self._model.close()
        said = ", ".join(f"{n} {what}" for what, n in sorted(self._counts.items()) if n)
        would = " (nothing was done)" if self._dry_run else ""
        _log.warning("range %s: %s%s", context.range.id, said or "nothing came", would)

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        newest = {x.id: x for x in changes}
        texts = {x.id: text for x in newest.values() if (text := self._text(x)) is not None}
        known = await asyncio.to_thread(self._store.made_of, list(newest))
        new = {x: text for x, text in texts.items() if known.get(x) != self._hash(text)}
        self._counts["texts embedded"] += len(new)
        self._counts["characters of them"] += sum(map(len, new.values()))
        self._counts["texts unchanged"] += len(texts) - len(new)
        self._counts["items without a text"] += len(newest) - len(texts)
        if self._model is None:
            return
        made = Embedding(self._model, self._at_once)
        await made.add(new)
        rows = [self._row(x, texts, made) for x in newest.values() if x.id not in made.refused]
        await asyncio.to_thread(self._store.write, rows)
        if made.refused:
            _acknowledge_others(context, changes, made.refused)
            raise ValueError("; ".join(f"item {x}: {why}" for x, why in made.refused.items()))

    def _text(self, change: Change) -> str | None:
        """Return the text of an item, ``None`` where there is none, or none any more."""
        if change.operation is Operation.DELETE:
            return None
        value: Any = change.value()
        return value.get(self._field) or None

    def _hash(self, text: str) -> bytes:
        return hashlib.blake2b(f"{self._name}\n{text}".encode(), digest_size=16).digest()

    def _row(self, change: Change, texts: dict[str, str], made: Embedding) -> Row:
        text = texts.get(change.id)
        made_of = None if text is None else self._hash(text)
        return Row(change.id, change.committed_us, made_of, text, made.vectors.get(change.id))


def _acknowledge_others(
    context: Context, changes: Sequence[Change], refused: Collection[str]
) -> None:
    """Say that all is done but what is of the keys of items that were refused."""
    failing = {x.key for x in changes if x.id in refused}
    for change in changes:
        if change.key not in failing:
            context.acknowledge(change)
