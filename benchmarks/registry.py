"""All benchmarks, by name. A new one is one more line here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from . import (
    at_rest,
    balance,
    failover,
    handoff,
    keys,
    log,
    poison,
    restart,
    scale,
    scrape,
    skewed,
    skewed_processes,
    throughput,
    transactional,
    typed,
)
from .result import Result


@dataclass(frozen=True, slots=True)
class Benchmark:
    """``about`` is one line for people; ``measure`` takes half a minute, on Spark minutes."""

    about: str
    measure: Callable[[], Sequence[Result]]


def _pipeline() -> Sequence[Result]:
    from . import pipeline  # noqa: PLC0415 - brings Spark, which the others do without

    return pipeline.measure()


def _stores() -> Sequence[Result]:
    from . import stores  # noqa: PLC0415 - brings clients that are extras

    return stores.measure()


def _brokers() -> Sequence[Result]:
    from .brokers import run  # noqa: PLC0415 - brings a client of NATS

    return run.measure()


def _merging() -> Sequence[Result]:
    from . import merging  # noqa: PLC0415 - as above

    return merging.measure()


def _cosmos() -> Sequence[Result]:
    from . import cosmos  # noqa: PLC0415 - brings the test runner, which finds Maven

    return cosmos.measure()


def _failover_beside_java() -> Sequence[Result]:
    from . import failover_beside_java  # noqa: PLC0415 - as above

    return failover_beside_java.measure()


def _cosmos_bulk() -> Sequence[Result]:
    from . import cosmos_bulk  # noqa: PLC0415 - as above, and Spark

    return cosmos_bulk.measure()


BENCHMARKS: Mapping[str, Benchmark] = {
    "balance": Benchmark("rounds and moves until 100 leases are even", balance.measure),
    "balance-skewed": Benchmark("by load beside by count, where ranges differ", skewed.measure),
    "balance-processes": Benchmark(
        "the same by real processes, for two minutes each", skewed_processes.measure
    ),
    "at-rest": Benchmark("calls of the lease container when nothing happens", at_rest.measure),
    "throughput": Benchmark("one host against a bare loop over the feed", throughput.measure),
    "log": Benchmark("the embedded log: appends, reads, a compaction", log.measure),
    "typed": Benchmark("changes as structs against parsed ones", typed.measure),
    "transactional": Benchmark(
        "rows and position in one transaction against rows alone", transactional.measure
    ),
    "keys": Benchmark("16 keys at once against one after the other", keys.measure),
    "poison": Benchmark("one change in a hundred always fails", poison.measure),
    "handoff": Benchmark("ranges that move between living hosts", handoff.measure),
    "restart": Benchmark("hosts that are restarted one by one", restart.measure),
    "failover": Benchmark("a host that is killed", failover.measure),
    "scrape": Benchmark("metrics of a host with 1,000 ranges, fetched", scrape.measure),
    "scale": Benchmark("10,000 ranges on one host, 500 hosts in a plan", scale.measure),
    "cosmos": Benchmark("hosts over Cosmos DB beside azure-cosmos and Java", _cosmos),
    "cosmos-bulk": Benchmark("Cosmos DB on Spark against Azure's Java client", _cosmos_bulk),
    "failover-beside-java": Benchmark("a killed host, ours and Java's", _failover_beside_java),
    "stores": Benchmark(
        "stores of leases side by side: calls, fleets of hosts, a kill", _stores
    ),
    "brokers": Benchmark("a cluster's broker: rates, answers, requests, eras", _brokers),
    "pipeline": Benchmark("feeds on Spark against Spark's own streams of files", _pipeline),
    "merging": Benchmark("a merge, by the size of the table it is merged into", _merging),
}
