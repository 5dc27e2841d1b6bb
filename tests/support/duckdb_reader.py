"""Delta tables as DuckDB reads them, by its own extension and not through ``deltalake``."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pytest

_PACKAGE = "duckdb_extension_delta"


def read_by_duckdb(table: str) -> list[dict[str, Any]]:
    """Return all rows; skip the test where the extension is not to be had."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"{_PACKAGE} is not installed: pip install {_PACKAGE}")
    (extension,) = Path(spec.origin).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute("SELECT * FROM delta_scan(?)", [table])
        rows: list[dict[str, Any]] = found.to_arrow_table().to_pylist()
        return rows
