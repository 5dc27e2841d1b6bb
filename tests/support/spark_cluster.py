"""A standalone Spark on the loopback: a master and two workers, of what pip's pyspark has.

Executors are processes of their own, as on a cluster of machines: they get the code that is
shipped to them, may be killed, and are started again by their workers.
"""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from changefeed.pipeline.java import java_home
from tests.support.processes import beside, until

SECONDS: Final = 240.0
_WORKERS: Final = 2
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = "Successfully registered with master"
_EXECUTOR: Final = "CoarseGrainedExecutorBackend"
_TASK: Final = "Running task"
QUICK: Final = "-XX:TieredStopAtLevel=1"


@dataclass(frozen=True, kw_only=True)
class SparkCluster:
    """``master`` is its address; ``home`` has the logs of its processes and executors."""

    master: str
    home: Path

    def executors(self) -> Sequence[int]:
        """Return the ids of the processes that run as executors of this cluster now."""
        return [
            int(x.name)
            for x in Path("/proc").iterdir()
            if x.name.isdigit() and self._is_executor(x)
        ]

    def has_worked(self, executor: int) -> bool:
        """Say whether an executor that lives has begun a task."""
        with suppress(OSError):
            log = Path(f"/proc/{executor}/cwd/stderr")
            return _TASK in log.read_text(errors="replace")
        return False

    def said(self) -> str:
        """Return what executors have logged."""
        return "\n".join(
            x.read_text(errors="replace") for x in self.home.rglob("stderr") if x.is_file()
        )

    def _is_executor(self, process: Path) -> bool:
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            works_here = (process / "cwd").readlink().is_relative_to(self.home)
            return works_here and any(x.endswith(_EXECUTOR.encode()) for x in words)
        return False


@contextmanager
def spark_cluster(home: Path) -> Iterator[SparkCluster]:
    """Start it, and stop it with all of its executors. It listens on this machine only."""
    with ExitStack() as stack:
        log = stack.enter_context(_daemon(home / "master", "deploy.master.Master"))
        until(lambda: _STARTED.search(log.read_text()), said=log, patience=SECONDS)
        found = _STARTED.search(log.read_text())
        assert found is not None
        cluster = SparkCluster(master=found[1], home=home)
        stack.callback(_kill, cluster)  # once no worker could start others
        told = ("--cores=1", "--memory=1g", f"--work-dir={home / 'work'}", cluster.master)
        logs = [
            stack.enter_context(_daemon(home / f"worker-{n}", "deploy.worker.Worker", *told))
            for n in range(_WORKERS)
        ]
        for log in logs:
            until(partial(_says, log, _REGISTERED), said=log, patience=SECONDS)
        yield cluster


@contextmanager
def _daemon(home: Path, name: str, *arguments: str) -> Iterator[Path]:
    """Run a class of Spark in a process of its own; yield the file that it logs to."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    spark = Path(spec.origin).parent
    home.mkdir(parents=True)
    log = home / "log"
    java = java_home(os.environ)
    environment = {
        **os.environ,
        **({"JAVA_HOME": java} if java else {}),
        "SPARK_HOME": str(spark),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    given = ("--host=127.0.0.1", "--port=0", "--webui-port=0", *arguments)
    words = [y for x in given for y in x.split("=", 1)]
    with beside(
        spark / "bin/spark-class",
        f"org.apache.spark.{name}",
        *words,
        cwd=home,
        said=log,
        env=environment,
    ):
        yield log


def _says(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text()


def _kill(cluster: SparkCluster) -> None:
    """End the executors, which live on for a while without their workers."""
    for process in cluster.executors():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
