"""What a command imports: the less, the sooner it answers."""

import subprocess
import sys

HEAVY = {
    *("aiohttp", "aiosqlite", "azure", "mmh3", "msgspec", "opentelemetry", "pyarrow"),
    *("pydantic", "pyspark", "rich", "structlog", "tenacity"),
}


def imported(*arguments: str) -> set[str]:
    """Return the top-level names of what a command has imported when it ends."""
    code = f"""
import sys
from changefeed.cli import main
sys.argv = {["changefeed", *arguments]!r}
try:
    main()
except SystemExit:
    print(*sorted({{x.partition(".")[0] for x in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_printed_without_any_library_of_hosts() -> None:
    assert imported("--version") & HEAVY == set()


def test_a_host_imports_no_spark() -> None:
    assert imported("run", "--help") & {"deltalake", "pyarrow", "pyspark"} == set()
