"""Records a second through one broker, and what is compared with that, by turns.

One producer in this process appends to one broker in its own; the embedded log's writer does
the same here, with a sync for each batch of 10,000. Then both are read, in pages of 1,000,
one range after the other. NATS JetStream takes its turn in each round (``jetstream``).
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.logs import records
from benchmarks.result import Goal, Result, at_least, by_rounds
from changefeed import Record, open_feed, open_producer
from changefeed.feeds.feed import Feed
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter

from . import jetstream
from .cluster import WAITLESS, open_cluster
from .names import PARTS

Rates = Mapping[str, float]
GOAL_APPENDED = 150_000
_AT_ONCE = 1_000
_EMBEDDED_BATCH = 10_000
_PAGE = 1_000
_ROUNDS = 3


async def measured(count: int) -> Sequence[Result]:
    server = jetstream.server()
    rounds = [await _round(count, server) for _ in range(_ROUNDS)]
    found = [
        _of(rounds, "embedded writer"),
        _of(rounds, "appended", against="embedded writer", goal=0.6),
        _of(rounds, "embedded log read"),
        _of(rounds, "read", against="embedded log read", goal=0.7),
    ]
    found.insert(2, _enough(found[1]))
    found += [_core(rounds, x) for x in ("producer's core", "broker's core")]
    return found if server is None else [*found, *_beside_jetstream(rounds)]


def _beside_jetstream(rounds: Sequence[Rates]) -> Sequence[Result]:
    """Return its rates, and ours as multiples of them."""
    return [
        _of(rounds, "jetstream appended"),
        _of(rounds, "jetstream appended without syncs"),
        _of(rounds, "jetstream read"),
        _times(rounds, "appended", "jetstream appended", goal=10),
        _times(rounds, "appended", "jetstream appended without syncs"),
        _times(rounds, "read", "jetstream read", goal=10),
    ]


def _of(
    rounds: Sequence[Rates], what: str, *, against: str | None = None, goal: float | None = None
) -> Result:
    return by_rounds("brokers", rounds, what, "records/s", against=against, goal=goal)


def _enough(appended: Result) -> Result:
    least = GOAL_APPENDED
    goal = Goal(text=f"≥ {least:,}/s", met=appended.value >= least)
    return Result(
        name="brokers.appended in a second", value=appended.value, unit="records/s", goal=goal
    )


def _core(rounds: Sequence[Rates], what: str) -> Result:
    """Return what a record costs of a core, which does not depend on what else runs."""
    return by_rounds("brokers", rounds, what, "µs/record")


def _times(
    rounds: Sequence[Rates], what: str, against: str, *, goal: float | None = None
) -> Result:
    found = _of(rounds, what, against=against)
    assert found.ratio is not None
    return Result(
        name=f"{found.name} / {against}",
        value=found.ratio,
        unit="times",
        against=f"brokers.{against}",
        goal=None if goal is None else at_least(found.ratio, goal),
    )


async def _round(count: int, server: Path | None) -> Rates:
    batches = [records(n, _AT_ONCE) for n in range(0, count, _AT_ONCE)]
    found: dict[str, float] = {}
    with TemporaryDirectory(prefix="bench-") as folder:
        log = Path(folder) / "log"
        found["embedded writer"] = count / await _append_embedded(log, batches)
        async with open_cluster("broker-1") as cluster:
            broker, ours = cluster.busy(), time.process_time()
            found["appended"] = count / await append(cluster.address, batches)
            found["producer's core"] = 1e6 * (time.process_time() - ours) / count
            found["broker's core"] = 1e6 * (cluster.busy() - broker) / count
            async with open_feed(f"eventlog:{log}") as feed:
                found["embedded log read"] = count / await _read(feed, count)
            async with BrokersFeed.open(cluster.where, WAITLESS) as through:
                found["read"] = count / await _read(through, count)
    if server is not None:
        found |= await jetstream.rates(server)
    return found


async def _append_embedded(path: Path, batches: Sequence[Sequence[Record]]) -> float:
    await create_log(path, PARTS)
    step = _EMBEDDED_BATCH // _AT_ONCE
    async with EventLogWriter.open(path) as writer:
        began = time.perf_counter()
        for n in range(0, len(batches), step):
            await writer.send_many([x for batch in batches[n : n + step] for x in batch])
        return time.perf_counter() - began


async def append(address: str, batches: Sequence[Sequence[Record]]) -> float:
    """Append as fast as it goes, with a bounded memory; return the seconds it took."""
    async with open_producer(address) as producer:
        began = time.perf_counter()
        for batch in batches:
            await producer.submit(batch)
        await producer.flush()
        return time.perf_counter() - began


async def _read(feed: Feed, wanted: int) -> float:
    count, began = 0, time.perf_counter()
    for r in await feed.ranges():
        after = await feed.start(r, "beginning")
        while (page := await feed.read(r, after, _PAGE)).changes:
            count += len(page.changes)
            after = page.position
    seconds = time.perf_counter() - began
    assert count == wanted, f"{count} of {wanted} records were read"
    return seconds
