"""Commands as they are where no extra is installed."""

import subprocess
import sys

import pytest

_WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"obstore", "pyarrow", "pyspark", "numpy", "asyncpg", "redis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import runpy
runpy.run_module("changefeed", run_name="__main__")
"""


@pytest.mark.parametrize("command", ["", "run", "broker", "log seal", "pipeline once"])
def test_no_command_needs_an_extra_to_say_what_it_does(command: str) -> None:
    arguments = [*command.split(), "--help"]
    helped = subprocess.run(
        [sys.executable, "-c", _WITHOUT, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert helped.returncode == 0, helped.stderr
    assert "Usage" in helped.stdout
