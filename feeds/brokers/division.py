"""Who gets which partitions: evenly, and in runs. Pure.

Partitions are in the order of part and virtual parts, brokers in that of their names; each
broker gets a run of them, floor or ceil of the average long. With several collections the
longer runs go to one broker after the other, so that the sums differ by one at most, too.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from changefeed.feeds.brokers.catalog import Collection, Partition


def run_lengths(partitions: int, brokers: int, skip: int = 0) -> list[int]:
    """Return how many partitions each broker gets, in order.

    The longer runs begin at the broker number ``skip``, counted from 0, and go round.
    """
    least, more = divmod(partitions, brokers)
    lengths = [least + ((n - skip) % brokers < more) for n in range(brokers)]
    assert sum(lengths) == partitions, f"{lengths} are not {partitions} partitions"
    assert max(lengths) - min(lengths) <= 1, f"{lengths} are not even"
    return lengths


def new_partitions(
    era: int, collections: Sequence[Collection], brokers: Sequence[str]
) -> dict[str, tuple[Partition, ...]]:
    """Return the open partitions of an era by collection.

    ``brokers`` are in order. Adding a collection at the end changes nothing of the others.
    """
    assert brokers, f"era {era} has no brokers"
    found = {}
    skip = 0
    for collection in collections:
        shape = list(collection.shape())
        owners = _owners(run_lengths(len(shape), len(brokers), skip), brokers)
        found[collection.name] = tuple(
            Partition(era=era, part=part, low=low, high=high, broker=owner)
            for (part, low, high), owner in zip(shape, owners, strict=True)
        )
        skip = (skip + len(shape)) % len(brokers)
    shares = Counter(x.broker for partitions in found.values() for x in partitions)
    sizes = [shares[x] for x in brokers]
    assert max(sizes) - min(sizes) <= 1, f"{shares} is not even"
    return found


def _owners(lengths: Sequence[int], brokers: Sequence[str]) -> Iterator[str]:
    for broker, length in zip(brokers, lengths, strict=True):
        yield from [broker] * length
