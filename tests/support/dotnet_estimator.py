"""What .NET's estimator, and KEDA's scaler after it, make of leases: how much is left to read.

Written from ``ChangeFeedEstimatorIterator`` and without code of ours: every document whose id
begins as a lease counts. One of version 1 is read within its bounds, another from the physical
range that its token names.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from emulator.tests.by_hand import Hand, Reply

Document = Mapping[str, Any]


class RangeGone(Exception):
    """A lease names a range that Cosmos DB does not have: .NET fails, KEDA counts work."""


async def remaining_work(by_hand: Hand, leases: Sequence[Document]) -> dict[str, int]:
    """Return it for each lease, by its id. Raise ``RangeGone``."""
    found = (await by_hand.send("GET", "/dbs/d/colls/c/pkranges")).body["PartitionKeyRanges"]
    return {x["id"]: await _of_lease(by_hand, x, found) for x in leases if ".." in x["id"]}


async def _of_lease(by_hand: Hand, lease: Document, ranges: Sequence[Document]) -> int:
    after = lease["ContinuationToken"]
    if lease["version"] == 0:
        return await _in_range(by_hand, lease["LeaseToken"], after)
    low, high = (lease["FeedRange"]["Range"][x] for x in ("min", "max"))
    bounds = {
        "x_ms_start_epk": low,
        "x_ms_end_epk": high,
        "x_ms_read_key_type": "EffectivePartitionKeyRange",
    }
    overlapping = [
        x["id"] for x in ranges if x["minInclusive"] < high and low < x["maxExclusive"]
    ]
    return sum([await _in_range(by_hand, x, after, **bounds) for x in overlapping])


async def _in_range(by_hand: Hand, range_id: str, after: str | None, **bounds: str) -> int:
    answer = await by_hand.feed(after, range_id, x_ms_max_item_count="1", **bounds)
    if answer.status == 410:
        raise RangeGone(range_id)
    assert answer.status in {200, 304}, answer
    newest = _newest(answer)
    items = answer.body["Documents"] if answer.status == 200 else []
    done = int(items[0]["_lsn"]) - 1 if items else newest
    return 1 if done < 0 else max(0, newest - done)


def _newest(answer: Reply) -> int:
    _, _, said = answer.headers["x-ms-session-token"].partition(":")
    numbers = said.split("#")
    return int(numbers[1] if len(numbers) > 1 else numbers[0])
