"""Handing a pipeline to a Spark cluster: the command line that does it.

``spark-submit`` gets our package as one archive, and ``changefeed.cli.pipeline`` as the
program. The settings are read by the driver, which runs on this machine (client mode). The
Python of the executors must have what our package imports (pyarrow, msgspec, ...): that is
compiled code, which no such archive carries.
"""

import shutil
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import changefeed
from changefeed.pipeline.delta_jar import with_delta
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.settings import PipelineSettings

_PYTHON_PATH: Final = "spark.executorEnv.PYTHONPATH"
_COMMANDS: Final = ("run", "once", "observe")
_ENTRY: Final = """\
from changefeed.cli.pipeline import app

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
    home = Path(changefeed.__file__).parent
    directory.mkdir(parents=True, exist_ok=True)
    archive, entry = directory / "changefeed.zip", directory / "changefeed_pipeline.py"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for file in sorted(_sources(home)):
            out.write(file, file.relative_to(home.parent).as_posix())
    entry.write_text(_ENTRY, encoding="utf-8")
    return archive, entry


def _sources(package: Path) -> Iterator[Path]:
    """Yield the modules of our package. In a checkout its folders are links."""
    for entry in package.iterdir():
        if entry.is_dir():
            yield from (entry / x.relative_to(entry.resolve()) for x in _modules(entry))
        elif entry.suffix == ".py":
            yield entry


def _modules(folder: Path) -> Iterator[Path]:
    return folder.resolve().rglob("*.py")


def command(
    settings: PipelineSettings,
    file: Path,
    *,
    directory: Path,
    master: str,
    what: str,
    python: str | None = None,
    further: Sequence[str] = (),
    start: Sequence[str] = (),
) -> list[str]:
    """Return the command that submits a pipeline. It reads ``file`` again, where it runs.

    ``further`` are arguments for spark-submit, and go before what the settings say; ``start``
    are flags of the program that say where it starts. Raise
    ``PipelineRefused`` for what cannot be submitted.
    """
    if what not in _COMMANDS:
        raise PipelineRefused(
            f"{what!r} cannot be submitted; there are: {', '.join(_COMMANDS)}"
        )
    archive, entry = bundle(directory)
    # Said here and not only by the session: the driver's Java is there before the session.
    conf = {
        "spark.pyspark.python": python or sys.executable,
        **with_delta(settings.spark, *further),
    }
    # What plans batches is a process of the driver's Java, which is given no --py-files.
    conf[_PYTHON_PATH] = ":".join(filter(None, [str(archive), conf.get(_PYTHON_PATH)]))
    return [
        spark_submit(),
        f"--master={master}",
        *(f"--conf={name}={value}" for name, value in conf.items()),
        *_with_py_files(further, archive),
        str(entry),
        what,
        f"--config={file}",
        *start,
        "--submitted",
    ]


def _with_py_files(further: Sequence[str], archive: Path) -> list[str]:
    """Add our archive to the files given: of several arguments, the last would count alone."""
    rest, files = [], [str(archive)]
    arguments = iter(further)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name == "--py-files":
            files.append(value if equals else next(arguments, ""))
        else:
            rest.append(argument)
    return [f"--py-files={','.join(files)}", *rest]
