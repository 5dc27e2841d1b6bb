"""A Redis and an Azurite on loopback, each as long as a block lasts."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

AZURITE_KEY = (  # no secret: every Azurite answers to this account and key
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_PATIENCE = 30.0


@contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Start a Redis that saves nothing; yield its address."""
    with _serving("redis-server", "apt-get install redis-server") as (binary, port):
        command = [binary, "--port", f"{port}", "--bind", "127.0.0.1", "--save", ""]
        with _running(command, folder, port):
            yield f"redis://127.0.0.1:{port}/0"


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Start Azure Blob Storage on this machine; yield the address of a container in it."""
    with _serving("azurite-blob", "npm install -g azurite") as (binary, port):
        options = ["--blobPort", f"{port}", "--location", f"{folder}", "--silent"]
        with _running([binary, *options, "--skipApiVersionCheck"], folder, port):
            yield f"blob+http://127.0.0.1:{port}/devstoreaccount1/leases/sample"


@contextmanager
def _serving(name: str, install: str) -> Iterator[tuple[str, int]]:
    """Find a program, and a port for it."""
    found = shutil.which(name)
    if found is None:
        raise SystemExit(f"{name} is not on the PATH: {install}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    yield found, port


@contextmanager
def _running(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    with (folder / f"{Path(command[0]).name}.log").open("wb") as log:
        server = subprocess.Popen(  # noqa: S603 - a server that was found on the PATH
            command, stdout=log, stderr=log, cwd=folder
        )
    try:
        until = time.monotonic() + _PATIENCE
        while not _accepts(port):
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{command[0]} does not serve: see {log.name}")
            time.sleep(0.05)
        yield
    finally:
        server.terminate()
        server.wait()


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 0.5):
            return True
    except OSError:
        return False
