"""Merging rows into a Delta table, so that merging them again changes nothing."""

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable

from .appending import ensure_table


def merge(uri: str, rows: pa.Table, *, keys: Sequence[str], newer: str | None = None) -> None:
    """Put each row in the place of the one with the same keys, or beside the others.

    ``newer`` is a condition over the rows ``s`` (from the batch) and ``t`` (in the table)
    under which a row is replaced; without it, always. Keys that are null are equal.
    """
    if not rows.num_rows:
        return
    table = ensure_table(uri, rows.schema)
    # An OR of equal and both null would be no key to join by: every row with every other.
    same = " AND ".join(f"(t.`{x}` IS NOT DISTINCT FROM s.`{x}`)" for x in keys)
    (
        table.merge(rows, predicate=same, source_alias="s", target_alias="t")
        .when_matched_update_all(predicate=newer)
        .when_not_matched_insert_all()
        .execute()
    )


def compact(uri: str) -> None:
    """Put small files together, and remove files that no reader of the last week needs."""
    table = DeltaTable(uri)
    table.optimize.compact()
    table.vacuum(dry_run=False)
