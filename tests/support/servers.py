"""Real servers for tests and benchmarks: PostgreSQL, Redis, Azurite and moto, on loopback.

Each has a data directory of its own, which goes with it. One of each kind is started when
it is first asked for and shared by all tests of the process; ``stop_all`` ends them, and
the system does if this process is killed. A test that stops or freezes a server starts one
of its own. Where a server is not installed, ``Missing`` says what would install it.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.support.ports import free_port as free_port  # noqa: PLC0414 - with it, tests choose one
from tests.support.processes import PATIENCE


class Missing(Exception):
    """A server is not installed here. The text says what would install it."""


class Server(ABC):
    """A server process that can be stopped, frozen, killed and started again."""

    user: str | None = None

    def __init__(self) -> None:
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="changefeed-server-"))
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> Sequence[str | Path]: ...

    @abstractmethod
    def ready(self) -> bool:
        """Whether the server answers: asked for until it does."""

    @property
    def environment(self) -> Mapping[str, str]:
        return {}

    def start(self) -> None:
        log = self.directory / "server.log"
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                self._as_its_user(self.command()),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE
        while not self.ready():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, with all processes of its own, as a crash would."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        self._signal(self.stopping)
        self._wait()

    stopping = signal.SIGTERM

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def discard(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _as_its_user(self, command: Sequence[str | Path]) -> Sequence[str]:
        """The command as the server's user, killed by the system when this process ends.

        ``setpriv`` sees to both after the fork: Python would do it between fork and exec, in
        a copy of a process with many threads, where the child may crash or hang.
        """
        user = (f"--reuid={self.user}", f"--regid={self.user}", "--init-groups")
        return [
            *("setpriv", "--pdeathsig=KILL", *(user if self.user is not None else ())),
            *map(str, command),
        ]

    def _signal(self, number: int) -> None:
        """Signal the server and its own processes: all in a group, or in groups of theirs."""
        if self._process is None:
            return
        for pid in [*_children(self._process.pid), self._process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait(PATIENCE)
            self._process = None


def _children(pid: int) -> Sequence[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    with contextlib.suppress(FileNotFoundError):
        return [int(x) for x in path.read_text().split()]
    return []


def accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


class Postgres(Server):
    """One database, ``postgres``, whose superuser of that name needs no password."""

    def __init__(self, *options: str) -> None:
        folder = _postgres_folder()
        self._binaries, self._options = folder, options
        if os.geteuid() == 0:
            self.user = "postgres"  # it refuses to run as root
        super().__init__()
        if self.user is not None:
            shutil.chown(self.directory, self.user, self.user)
        self.stopping = signal.SIGINT  # without waiting for its clients
        self._create()

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def _create(self) -> None:
        made = self._initdb()
        if made.returncode < 0:  # it crashed, as seen once in some thousand runs
            shutil.rmtree(self.data, ignore_errors=True)
            made = self._initdb()
        assert made.returncode == 0, f"initdb ended with {made.returncode}: {made.stdout}"

    def _initdb(self) -> subprocess.CompletedProcess[str]:
        where = (self._binaries / "initdb", "-D", self.data, "-U", "postgres")
        return subprocess.run(
            self._as_its_user([*where, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory,
        )

    def command(self) -> Sequence[str | Path]:
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=16MB",
            *self._options,
        )
        return [
            *(self._binaries / "postgres", "-D", self.data),
            *(x for setting in settings for x in ("-c", setting)),
        ]

    def place(self, file: Path, name: str) -> None:
        """Copy a file into the data directory, readable by the server alone."""
        placed = shutil.copyfile(file, self.data / name)
        placed.chmod(0o600)
        if self.user is not None:
            shutil.chown(placed, self.user, self.user)

    def ready(self) -> bool:
        asked = subprocess.run(
            [self._binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)],
            check=False,
        )
        return asked.returncode == 0


def _postgres_folder() -> Path:
    found = shutil.which("postgres")
    if found is not None and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not folders:
        raise Missing("PostgreSQL is not installed: apt-get install postgresql")
    return folders[-1].parent


class PgBouncer(Server):
    """Passes each transaction to one of two connections to PostgreSQL."""

    def __init__(self, postgres: Postgres) -> None:
        found = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
        if not Path(found).exists():
            raise Missing("PgBouncer is not installed: apt-get install pgbouncer")
        super().__init__()
        self._binary, self.user = found, postgres.user
        settings = (
            "[databases]",
            f"* = host=127.0.0.1 port={postgres.port} user=postgres",
            "[pgbouncer]",
            f"listen_port={self.port}",
            *("listen_addr=127.0.0.1", "unix_socket_dir=", "auth_type=any"),
            *("pool_mode=transaction", "default_pool_size=2"),
        )
        (self.directory / "pgbouncer.ini").write_text("\n".join(settings))
        if self.user is not None:
            for path in (self.directory, self.directory / "pgbouncer.ini"):
                shutil.chown(path, self.user, self.user)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def command(self) -> Sequence[str | Path]:
        return [self._binary, self.directory / "pgbouncer.ini"]

    def ready(self) -> bool:
        return accepts(self.port)


class Redis(Server):
    def __init__(self, *options: str) -> None:
        found = shutil.which("redis-server")
        if found is None:
            raise Missing("Redis is not installed: apt-get install redis-server")
        self._binary, self._options = found, options
        super().__init__()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> Sequence[str | Path]:
        return [
            *(self._binary, "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--dir", self.directory, "--save", ""),
            *self._options,
        ]

    def ready(self) -> bool:
        return self.ask("PING").startswith("+PONG")

    def ask(self, *words: str) -> str:
        """Send one command past all clients; return the beginning of the answer."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), 2) as connection,
        ):
            connection.sendall((" ".join(words) + "\r\n").encode())
            return connection.recv(4096).decode()
        return ""


class Azurite(Server):
    """Azure Blob Storage on this machine, under the account and key it is known for."""

    account = "devstoreaccount1"
    key = (
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq"
        "/K1SZFPTOtr/KBHBeksoGMGw=="
    )

    def __init__(self, *options: str) -> None:
        self._binary, self._options = _azurite(), options
        super().__init__()

    @property
    def _scheme(self) -> str:
        return "https" if "--cert" in self._options else "http"

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}/{self.account}"

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol={self._scheme};AccountName={self.account};"
            f"AccountKey={self.key};BlobEndpoint={self.endpoint};"
        )

    def command(self) -> Sequence[str | Path]:
        return [
            *(self._binary, "--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
            *("--location", self.directory, "--silent", "--disableTelemetry"),
            "--skipApiVersionCheck",
            *self._options,
        ]

    def ready(self) -> bool:
        return accepts(self.port)


def _azurite() -> str:
    named = os.environ.get("TEST_AZURITE")
    installed = Path(__file__).parents[2] / ".venv/azurite/node_modules/.bin/azurite-blob"
    for place in (named, shutil.which("azurite-blob"), str(installed)):
        if place and Path(place).exists():
            return place
    raise Missing("Azurite is not installed: npm install --prefix .venv/azurite azurite")


class Moto(Server):
    """S3 on this machine, as moto has it: in memory, so what it holds goes with a stop."""

    def __init__(self) -> None:
        self._binary = Path(sys.executable).with_name("moto_server")
        if not self._binary.exists():
            raise Missing("moto is not installed: pip install 'moto[server]'")
        super().__init__()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self) -> Sequence[str | Path]:
        return [self._binary, "-H", "127.0.0.1", "-p", str(self.port)]

    def ready(self) -> bool:
        return accepts(self.port)


_started: list[Server] = []


def started(server: Server) -> Server:
    server.start()
    _started.append(server)
    return server


@cache
def _shared(make: Callable[[], Server]) -> Server | Missing:
    """Start it once; what is missing is looked for once."""
    try:
        return started(make())
    except Missing as missing:
        return missing


def _the(make: Callable[[], Server]) -> Server:
    found = _shared(make)
    if isinstance(found, Missing):
        raise found
    return found


def postgres() -> Postgres:
    server = _the(Postgres)
    assert isinstance(server, Postgres)
    return server


def redis() -> Redis:
    server = _the(Redis)
    assert isinstance(server, Redis)
    return server


def azurite() -> Azurite:
    server = _the(Azurite)
    assert isinstance(server, Azurite)
    return server


def stop_all() -> None:
    """End what was started for sharing, and forget it."""
    while _started:
        _started.pop().discard()
    _shared.cache_clear()
