"""What a process has used, as the system counts it (Linux): right on a busy machine, too."""

import os
from asyncio.subprocess import Process
from pathlib import Path


def cpu_seconds(process: Process) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def megabytes(process: Process) -> float:
    """Return how much memory it has now."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    (resident,) = (x.split()[1] for x in status if x.startswith("VmRSS"))
    return int(resident) / 1024
