"""Handing a pipeline to a Spark cluster: the command line that does it.

``spark-submit`` gets our packages as one archive, the settings as a file beside it, and
``pipeline.cli`` as the program. The cluster's Python must have what our packages import
(pyarrow, msgspec, deltalake, ...): that is compiled code, which no archive carries.
"""

import shutil
import sys
import zipfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .errors import PipelineRefused

_PACKAGES: Final = ("feeds", "observers", "leases", "pipeline")
_ENTRY: Final = """\
from pipeline.cli import app

app()
"""


def spark_submit() -> str:
    """Return where ``spark-submit`` is: on the path, or in the package pyspark."""
    found = shutil.which("spark-submit")
    if found is not None:
        return found
    spec = find_spec("pyspark")
    if spec is not None and spec.origin is not None:
        own = Path(spec.origin).parent / "bin" / "spark-submit"
        if own.exists():
            return str(own)
    raise PipelineRefused("there is no spark-submit: install pyspark, or put Spark on the path")


def bundle(directory: Path) -> tuple[Path, Path]:
    """Write our packages as an archive, and the program to start; return both."""
    home = Path(__file__).resolve().parent.parent
    archive, entry = directory / "changefeed.zip", directory / "changefeed_pipeline.py"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for package in _PACKAGES:
            for file in sorted((home / package).rglob("*.py")):
                out.write(file, file.relative_to(home).as_posix())
    entry.write_text(_ENTRY, encoding="utf-8")
    return archive, entry


def command(
    settings: Path, *, directory: Path, master: str, once: bool, spark: Sequence[str] = ()
) -> list[str]:
    """Return the command that submits a pipeline; ``spark`` are further arguments for it."""
    archive, entry = bundle(directory)
    return [
        spark_submit(),
        f"--master={master}",
        f"--py-files={archive}",
        f"--files={settings}",
        f"--conf=spark.pyspark.python={sys.executable}",
        *spark,
        str(entry),
        "once" if once else "run",
        f"--config={settings}",
        "--submitted",
    ]
