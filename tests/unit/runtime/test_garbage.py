"""What is freed is used again, and does not come from the kernel each time."""

import os
import subprocess
import sys

import pytest

_PAGES = """
import resource
from changefeed.runtime.garbage import keep_freed_buffers
keep_freed_buffers()
for _ in range(100):
    [b"x" * 500_000 for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(**environ: str) -> int:
    ours = {x: y for x, y in os.environ.items() if not x.startswith("MALLOC_")} | environ
    done = subprocess.run(
        [sys.executable, "-c", _PAGES], env=ours, check=True, capture_output=True, text=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the malloc is glibc's")
def test_freed_buffers_are_kept_unless_the_environment_says_otherwise() -> None:
    assert faults() * 3 < faults(MALLOC_TRIM_THRESHOLD_="131072")
