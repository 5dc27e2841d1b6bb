"""Delta tables read back: through ``deltalake``, and by DuckDB's own extension."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

_PACKAGE = "duckdb_extension_delta"


def rows_of(table: str | Path) -> list[dict[str, Any]]:
    """Return all rows, in an order that depends on nothing else."""
    return sorted(pa.table(DeltaTable(str(table)).to_pyarrow_table()).to_pylist(), key=repr)


def read_by_duckdb(table: str | Path) -> list[dict[str, Any]]:
    """Return the same; skip the test where the extension is not to be had."""
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        pytest.skip(f"{_PACKAGE} is not installed: pip install {_PACKAGE}")
    (extension,) = Path(spec.origin).parent.rglob("delta.duckdb_extension")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{extension}'")
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute("SELECT * FROM delta_scan(?)", [str(table)])
        return sorted(found.to_arrow_table().to_pylist(), key=repr)
