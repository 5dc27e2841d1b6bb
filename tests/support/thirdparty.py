"""Installs the package of ``tests/strangers/thirdparty`` by path, as pip would."""

import importlib
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "strangers" / "thirdparty"


def site_with_shelf(site: Path) -> Path:
    """Make a directory for ``PYTHONPATH``: the package, and the metadata of its project."""
    site.mkdir(exist_ok=True)
    (site / "changefeed_shelf").symlink_to(PROJECT / "changefeed_shelf")
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return with_metadata(site, project["name"], project["entry-points"])


def with_metadata(site: Path, name: str, entry_points: dict[str, dict[str, str]]) -> Path:
    """Write what an installer writes of a project that has these entry points."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    groups = (
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())])
        for group, entries in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(groups) + "\n")
    return site


@contextmanager
def importable(site: Path) -> Iterator[None]:
    """Put a directory on the path of this process."""
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(site))
