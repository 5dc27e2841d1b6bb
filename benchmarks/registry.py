"""All benchmarks, by name. A new one is one more line here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from .result import Result


@dataclass(frozen=True, slots=True)
class Benchmark:
    """``about`` is one line for people. Its module is imported when it runs: one brings Spark,
    others clients that are extras, or the test runner, which finds Maven.
    """

    about: str
    module: str

    def measure(self) -> Sequence[Result]:
        """Take half a minute, or minutes with Spark or Java."""
        found: Sequence[Result] = import_module(f"{__package__}.{self.module}").measure()
        return found


BENCHMARKS: Mapping[str, Benchmark] = {
    "balance": Benchmark("rounds and moves until 100 leases are even", "balance"),
    "balance-skewed": Benchmark("by load beside by count, where ranges differ", "skewed"),
    "throughput": Benchmark("one host against a bare loop over the feed", "throughput"),
    "log": Benchmark("the embedded log: appends, reads, a compaction", "log"),
    "typed": Benchmark("changes as structs against parsed ones", "typed"),
    "transactional": Benchmark(
        "rows and position in one transaction against rows alone", "transactional"
    ),
    "keys": Benchmark("16 keys at once against one after the other", "keys"),
    "poison": Benchmark("one change in a hundred always fails", "poison"),
    "handoff": Benchmark("ranges that move between living hosts", "handoff"),
    "restart": Benchmark("hosts that are restarted one by one", "restart"),
    "failover": Benchmark("a host that is killed", "failover"),
    "scrape": Benchmark("metrics of a host with 1,000 ranges, fetched", "scrape"),
    "scale": Benchmark("10,000 ranges on one host, 500 hosts in a plan", "scale"),
    "at-rest": Benchmark("1,000 ranges that nothing comes to; the first change", "at_rest"),
    "cosmos": Benchmark("hosts over Cosmos DB beside azure-cosmos and Java", "cosmos"),
    "spark-cosmos": Benchmark("Cosmos DB on Spark against its neighbours", "spark_cosmos"),
    "failover-beside-java": Benchmark("a killed host, ours and Java's", "failover_beside_java"),
    "stores": Benchmark(
        "stores of leases side by side: calls, fleets of hosts, a kill", "stores"
    ),
    "emulator": Benchmark(
        "the emulator of Cosmos DB: its start, memory, requests, snapshots", "emulator"
    ),
    "brokers": Benchmark("a cluster's broker: rates, answers, requests, eras", "brokers.run"),
    "pipeline": Benchmark("feeds on Spark against Spark's own streams of files", "pipeline"),
}
