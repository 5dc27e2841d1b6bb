"""NATS JetStream beside brokers: what somebody would take instead, on the same disk.

One stream in a file, without replicas, synced before each acknowledgement
(``sync_interval: always``), and the client that NATS itself gives to Python. It publishes
without waiting for each answer, with a window of 4,000 that are not acknowledged yet, as
the client has it. A publish has one message, and the server syncs each; the same without
syncs shows what the client can. Read with an ordered consumer, which is pushed to and
acknowledges nothing: the quicker of its kinds here.

The server is built by Go from its module; where there is no Go it is left out, and the
reason is printed. ``BENCH_NATS_SERVER`` names one that is there already.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.js import JetStreamContext
from nats.js.api import StorageType, StreamConfig

from benchmarks.logs import records
from changefeed import Record
from tests.support.servers import Server, accepts

_MODULE = "github.com/nats-io/nats-server/v2@v2.15.2"
_BUILT = Path(__file__).parents[2] / ".venv" / "go"
_WINDOW = 4_000
_SYNCED, _FREE = 2_000, 30_000
"""So many messages are published in a round; a sync for each takes its time."""
_PATIENCE = 60.0


def server() -> Path | None:
    """Return the server's program, built where it has to be. ``None`` where it cannot be."""
    try:
        return _program()
    except (OSError, subprocess.SubprocessError) as error:
        print(f"NATS JetStream is left out: {error}", file=sys.stderr)
        return None


def _program() -> Path:
    given = os.environ.get("BENCH_NATS_SERVER") or shutil.which("nats-server")
    if given:
        return Path(given)
    built = _BUILT / "nats-server"
    if not built.exists():
        go = shutil.which("go")
        if go is None:
            raise FileNotFoundError("its server is built by Go, and Go is not installed")
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOBIN": str(_BUILT)}
        built.parent.mkdir(parents=True, exist_ok=True)
        command = [go, "install", _MODULE]
        done = subprocess.run(
            command, check=False, env=environment, capture_output=True, timeout=600, text=True
        )
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise FileNotFoundError(f"Go could not build its server: {why}")
    return built


class NatsServer(Server):
    def __init__(self, program: Path, *, synced: bool) -> None:
        super().__init__()
        self._program = program
        sync = "sync_interval: always" if synced else ""
        folder = self.directory / "jetstream"
        (self.directory / "nats.conf").write_text(
            f"host: 127.0.0.1\nport: {self.port}\n"
            f'jetstream {{\nstore_dir: "{folder}"\n{sync}\n}}\n'
        )

    def command(self) -> Sequence[str | Path]:
        return [self._program, "-c", self.directory / "nats.conf"]

    def ready(self) -> bool:
        return accepts(self.port)


async def rates(program: Path) -> Mapping[str, float]:
    """Return records a second, appended with and without syncs, and read."""
    found = {}
    async with _stream(program, synced=True) as stream:
        found["jetstream appended"] = _SYNCED / await stream.publish(records(0, _SYNCED))
    async with _stream(program, synced=False) as stream:
        seconds = await stream.publish(records(0, _FREE))
        found["jetstream appended without syncs"] = _FREE / seconds
        found["jetstream read"] = _FREE / await stream.read(_FREE)
    return found


class _Stream:
    def __init__(self, context: JetStreamContext) -> None:
        self._context = context

    async def publish(self, sent: Sequence[Record]) -> float:
        """Publish, each key as a subject; return the seconds until all are acknowledged."""
        began = time.perf_counter()
        for record in sent:
            await self._context.publish_async(f"orders.{record.key}", record.body)
        async with asyncio.timeout(_PATIENCE):
            await self._context.publish_async_completed()
        seconds = time.perf_counter() - began
        stored = (await self._context.stream_info("orders")).state.messages
        assert stored == len(sent), f"{stored} of {len(sent)} messages are in the stream"
        return seconds

    async def read(self, count: int) -> float:
        began = time.perf_counter()
        reading = await self._context.subscribe("orders.*", ordered_consumer=True)
        for _ in range(count):
            await reading.next_msg(_PATIENCE)
        return time.perf_counter() - began


@asynccontextmanager
async def _stream(program: Path, *, synced: bool) -> AsyncIterator[_Stream]:
    running = NatsServer(program, synced=synced)
    try:
        await asyncio.to_thread(running.start)
        client = await nats.connect(f"nats://127.0.0.1:{running.port}")
        context = client.jetstream(publish_async_max_pending=_WINDOW)
        await context.add_stream(
            StreamConfig(name="orders", subjects=["orders.*"], storage=StorageType.FILE)
        )
        yield _Stream(context)
        await client.close()
    finally:
        await asyncio.to_thread(running.discard)
