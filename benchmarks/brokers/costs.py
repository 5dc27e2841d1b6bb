"""What an object store charges for a cluster, by the hour: from requests that were counted.

Pure, but for the command: ``python -m benchmarks.brokers.costs`` prints the table of
docs/cluster.md from ``counted.json``, and with ``--count`` counts again first (``requests``).
Requests are charged where they find nothing, too; deletions are free on both.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

COUNTED = Path(__file__).with_name("counted.json")
MB_A_BROKER = 25.0
"""What a broker is taken to write; it can do more (``brokers.appended``)."""
RATES = (10.0, 100.0, 1000.0)
_HOUR, _HOURS_A_MONTH = 3600, 730


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """US dollars: for a thousand requests of a kind, and for a GB in store for a month.

    ``source`` says whose, and when they were looked up.
    """

    name: str
    writes: float
    reads: float
    month_of_gb: float
    source: str


PRICES: Sequence[Prices] = (
    Prices(
        name="S3",
        writes=0.005,
        reads=0.0004,
        month_of_gb=0.023,
        source="S3 Standard, us-east-1, November 2026: aws.amazon.com/s3/pricing",
    ),
    Prices(
        name="Azure",
        writes=0.0055,
        reads=0.00044,
        month_of_gb=0.0208,
        source="Blob Storage, hot, the example prices of Microsoft's own page of estimates, "
        "November 2026:\n  learn.microsoft.com/azure/storage/blobs/blob-storage-estimate-costs",
    ),
)
"""Listings are charged as writes by both. The first 50 TB of a month; regions differ."""


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """Requests in a second: objects created, overwritten, read (or missed), and listings."""

    creates: float
    puts: float
    gets: float
    lists: float

    def by_kind(self) -> Mapping[str, float]:
        return msgspec.structs.asdict(self)

    @property
    def writes(self) -> float:
        """Return those that are charged as writes."""
        return self.creates + self.puts + self.lists

    def dollars(self, prices: Prices) -> float:
        """Return what an hour of them costs."""
        return (self.writes * prices.writes + self.gets * prices.reads) * _HOUR / 1000


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster of so many brokers asked in a second, that took ``mb`` MB/s."""

    mb: float
    brokers: int
    second: Second


def kept(prices: Prices, mb: float) -> float:
    """Return the dollars an hour of storing a day's records, uncompressed as they come."""
    return mb * 1e6 * 24 * _HOUR / 1e9 * prices.month_of_gb / _HOURS_A_MONTH


def page(counted: Sequence[Counted]) -> str:
    """Return the table and its prices as a page shows them."""
    head = ["MB/s", "brokers", "writes/s", "reads/s"]
    for prices in PRICES:
        head += [f"{prices.name}, requests", f"{prices.name}, a day's records"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for x in counted:
        asked = x.second
        row = [f"{x.mb:,.0f}", f"{x.brokers}", f"{asked.writes:,.0f}", f"{asked.gets:,.0f}"]
        for prices in PRICES:
            row += [f"${asked.dollars(prices):,.2f}", f"${kept(prices, x.mb):,.2f}"]
        lines.append(f"| {' | '.join(row)} |")
    table = "\n".join(lines)
    sources = "\n".join(
        f"* {x.name}: ${x.writes:g} for 1,000 writes or listings, ${x.reads:g} for 1,000 "
        f"reads, ${x.month_of_gb:g} for a GB and month.\n  {x.source}"
        for x in PRICES
    )
    return f"{table}\n\n{sources}\n"


def read_counted() -> Sequence[Counted]:
    return msgspec.json.decode(COUNTED.read_bytes(), type=list[Counted])


def write_counted(counted: Sequence[Counted]) -> None:
    text = msgspec.json.format(msgspec.json.encode(counted))
    COUNTED.write_bytes(text + b"\n")


if __name__ == "__main__":
    if "--count" in sys.argv[1:]:
        from .requests import count

        write_counted(count())
    sys.stdout.write(page(read_counted()))
