"""Vectors in SQLite: one row for each item, with what they were made of.

A row is written only over an older state of its item, so what is delivered again, or comes
late from a host that has lost its lease, changes nothing. A deleted item keeps its row, without
a vector, for the same reason.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from samples.vectors.models import Vector

_TABLES = """
create table if not exists vectors (
    id text primary key, committed_us integer not null, made_of blob, text text, vector blob
) without rowid
"""
_WRITE = """
insert into vectors values (?, ?, ?, ?, ?) on conflict (id) do update set
    committed_us = excluded.committed_us, made_of = excluded.made_of, text = excluded.text,
    vector = coalesce(excluded.vector, iif(excluded.made_of is made_of, vector, null))
where excluded.committed_us >= committed_us
"""


@dataclass(frozen=True)
class Row:
    """An item as of a time. ``made_of`` is a hash of the model and the text, and ``vector`` is
    ``None`` where that has not changed; both are ``None`` for an item that is deleted.
    """

    id: str
    committed_us: int
    made_of: bytes | None
    text: str | None
    vector: Vector | None


class VectorStore:
    def __init__(self, path: Path) -> None:
        self._path = path

    def made_of(self, ids: Collection[str]) -> Mapping[str, bytes]:
        """Return what the vectors of these items were made of, for those that have one."""
        if not self._path.exists():
            return {}
        with self._transaction() as store:
            found = store.execute(
                "select id, made_of from vectors where vector is not null "
                "and id in (select value from json_each(?))",
                [json.dumps(list(ids))],
            )
            return dict(found.fetchall())

    def write(self, rows: Iterable[Row]) -> None:
        """Write all rows in one transaction."""
        with self._transaction() as store:
            store.executemany(
                _WRITE,
                [(x.id, x.committed_us, x.made_of, x.text, _bytes(x.vector)) for x in rows],
            )

    def nearest(self, vector: Vector, count: int) -> list[tuple[float, str, str]]:
        """Return the similarity, the id and the text of the items that are nearest."""
        with self._transaction() as store:
            rows = store.execute(
                "select id, text, vector from vectors where vector is not null"
            ).fetchall()
        if not rows:
            return []
        vectors = np.stack([np.frombuffer(x[2], np.float32) for x in rows])
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
        similar = vectors @ vector / np.where(lengths == 0, 1, lengths)
        best = np.argsort(-similar)[:count]
        return [(float(similar[n]), rows[n][0], rows[n][1]) for n in best]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._path, timeout=30)) as store:
            store.execute(_TABLES)
            with store:
                yield store


def _bytes(vector: Vector | None) -> bytes | None:
    return None if vector is None else vector.astype(np.float32).tobytes()
