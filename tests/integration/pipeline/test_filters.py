"""Filters that Spark pushes into a batch."""

import asyncio
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from azure.cosmos import PartitionKey
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from changefeed.pipeline.source.filters import Filters
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.planning import (
    first_offset,
    slices_to,
    target_at,
)
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.record_batches import Envelope
from changefeed.pipeline.source.spark import (
    BatchReader,
    ChangefeedSource,
    FilteringReader,
    slices_between,
)
from changefeed.runtime.errors import UserError
from cosmos_emulator.testing import account_in_thread
from tests.support.pipeline_cosmos import ServedCosmos, write, written
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.succession import replace_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGE, SEQUENCE, TIME, KEY = ("range",), ("sequence",), ("committed_at",), ("key",)


def found(reader: BatchReader) -> list[dict[str, Any]]:
    """Read as Spark does: each task with a copy of the reader."""
    tasks, copy = reader.partitions(), pickle.loads(pickle.dumps(reader))
    return [y for x in tasks for batch in copy.read(x) for y in batch.to_pylist()]


def pushed(
    feed: str, filters: Sequence[Filter], **options: str
) -> tuple[list[Any], list[Filter], int]:
    """Return what is read with filters, those left to Spark, and how much is planned."""
    one = FilteringReader(Options.of({"feed": feed, **options}))
    left = list(one.pushFilters([*filters]))
    planned = sum(y.changes for x in one.partitions() for y in x.value)
    return found(one), left, planned


def test_ranges_and_sequences_are_kept_exactly_and_a_time_is_where_reading_begins(
    tmp_path: Path,
) -> None:
    feed = a_log(tmp_path / "log", {f"k{n}": 50 for n in range(8)})
    rows = found(BatchReader(Options.of({"feed": feed})))
    (one, *_), names = sorted({x["range"] for x in rows}), {x["range"] for x in rows}
    late = datetime.fromtimestamp(45, UTC)
    some: list[Filter] = [In(RANGE, (one, "nowhere")), GreaterThan(SEQUENCE, 3)]
    some += [
        LessThanOrEqual(SEQUENCE, 9),
        LessThan(SEQUENCE, 9),
        GreaterThanOrEqual(SEQUENCE, 2),
    ]
    read, left, planned = pushed(feed, some)
    assert read == [x for x in rows if x["range"] == one and 3 < x["sequence"] < 9]
    assert (left, planned) == ([], 5)
    exact = [EqualTo(RANGE, one), EqualTo(SEQUENCE, 7)]
    assert [x["sequence"] for x in pushed(feed, exact)[0]] == [7]
    bound, other = GreaterThan(TIME, late), EqualTo(("id",), "k1")
    read, left, planned = pushed(feed, [bound, other])
    assert left == [bound, other]
    wanted = [x for x in rows if x["committed_at"] > late]
    assert [x for x in read if x["committed_at"] > late] == wanted
    assert len(names) > 1
    assert planned < len(rows)


def test_a_part_of_a_transaction_is_kept_exactly(cosmos: ServedCosmos) -> None:
    cosmos.put_together("abc", "p")
    cosmos.put_together("def", "p")
    cosmos.put_together("ghi", "p")
    feed = cosmos.address()
    rows = found(BatchReader(Options.of({"feed": feed})))
    sequences = [x["sequence"] for x in rows]
    assert len(sequences) == 9
    for first in sequences:
        for last in sequences:
            within = [GreaterThanOrEqual(SEQUENCE, first), LessThanOrEqual(SEQUENCE, last)]
            read, left, planned = pushed(feed, within)
            assert read == [x for x in rows if first <= x["sequence"] <= last]
            assert not left
            assert planned <= 3 * (1 + max(0, (last >> 16) - (first >> 16)))
    all_versions = cosmos.address("all-versions") + "&max_ru=1000000"
    since = GreaterThan(TIME, datetime.fromtimestamp(1, UTC))
    one = FilteringReader(Options.of({"feed": all_versions, "startingAt": "now"}))
    assert list(one.pushFilters([since])) == [since]
    assert found(one) == []


def check_keys_of(access: Access, slices: Sequence[Slice], random: Random) -> None:
    """Check that filters on keys leave all slices that have one of them, and not all others."""
    there = {
        slice_: {
            key
            for range_id, part in access.read(slice_)
            for key in Envelope().batch(range_id, part, 0).column("key").to_pylist()
        }
        for slice_ in slices
    }
    keys = sorted(set[str]().union(*there.values()))
    some = [random.sample(keys, 3) for _ in range(5)]
    wanted: list[tuple[list[Filter], set[str]]] = [([EqualTo(KEY, x)], {x}) for x in keys]
    wanted += [
        ([In(KEY, (*x, "nowhere", None)), EqualNullSafe(KEY, x[0])], {x[0]}) for x in some
    ]
    wanted += [([In(KEY, tuple(x)), GreaterThan(KEY, "")], {*x}) for x in some]
    less = 0
    for filters, of in wanted:
        one = Filters()
        assert list(one.push(filters)) == filters
        kept = {*one.narrowed(access, slices)}
        assert {x for x, y in there.items() if of & y} <= kept, filters
        less += len(kept) <= len(of) * len(slices) // 3
    assert less > len(wanted) // 2
    none = Filters()
    assert list(none.push([EqualTo(KEY, x) for x in keys[:2]]))
    assert not list(none.narrowed(access, slices))


ODD_KEYS: Sequence[Any] = (
    *("ada", "", "=5", "==", "é" * 80, "\U0001f600\0", "x" * 300, 5, 5.5, -(1 << 60), 1e300),
    *(0, -0.0, True, False, None, {}, *(f"k{n}" for n in range(12))),
    *(-n * 1_000_000_007 for n in range(1, 13)),
)


@pytest.mark.parametrize(
    "definition",
    [
        PartitionKey("/a", version=1),
        PartitionKey("/a", version=2),
        PartitionKey(["/a", "/b/c"], kind="MultiHash"),
    ],
    ids=["version 1", "version 2", "hierarchical"],
)
def test_a_key_is_read_where_its_hash_lies_whatever_becomes_of_ranges(
    definition: PartitionKey,
) -> None:
    random, levels = Random(str(definition)), 2 if definition.kind == "MultiHash" else 1
    items: list[dict[str, Any]] = []
    for n, key in enumerate(ODD_KEYS):
        lower = random.choice(ODD_KEYS)
        if levels > 1 and {} in (key, lower):
            continue  # azure-cosmos cannot write it
        items.append({"id": f"i{n}", "b": {"c": lower}} | ({} if key == {} else {"a": key}))
    with account_in_thread() as account, ExitStack() as opened:
        feed = written(account.url, definition, [])["feed"]
        latest, every = (
            opened.enter_context(closing(Options.of({"feed": feed, "mode": x}).opened()))
            for x in ("latest-version", "all-versions")
        )
        begin = first_offset(every, "now")
        names = ["0"]
        for n in range(0, len(items), 3):
            write(account.url, items[n : n + 3])
            at = random.randrange(len(names))
            if at and n % 4 == 0:
                names[at - 1 : at + 1] = [account.merge("d", "k", names[at - 1 : at + 1])["id"]]
            else:
                made = account.split("d", "k", range=names[at])
                names[at : at + 1] = [x["id"] for x in made]
        for access, start in ((latest, first_offset(latest, "beginning")), (every, begin)):
            slices = [*slices_to(access, start, target_at(access, "now"))]
            check_keys_of(access, slices, random)
            for several in ("=0", "={}", "=no JSON", "[1]", "[1, {}]", '["a", 0]'):
                kept = access.holding(slices, ["ada", several])
                assert kept == slices or (levels == 1 and several.startswith("["))


def test_a_key_of_a_log_is_read_where_its_hash_lies_whatever_becomes_of_ranges(
    tmp_path: Path,
) -> None:
    keys = [f"k{n}" for n in range(500)] + ["", "é", "=5"]
    feed = a_log(tmp_path / "log", dict.fromkeys(keys, 1), parts=12)
    cuts = [(part, low, 255) for part in range(0, 12, 2) for low in (0, 100)]
    asyncio.run(replace_partitions(tmp_path / "log", [], cuts))
    append_to(tmp_path / "log", dict.fromkeys(keys, 1))
    options = Options.of({"feed": feed})
    with closing(options.opened()) as access:
        check_keys_of(access, slices_between(access, options), Random(5))


def test_a_stream_has_no_filters_to_push(tmp_path: Path) -> None:
    source = ChangefeedSource({"feed": a_log(tmp_path / "log", {}), "pushFilters": "true"})
    with pytest.raises(UserError, match="pushFilters"):
        source.streamReader(source.schema())


@pytest.fixture
def pushing(spark: "SparkSession") -> "Iterator[SparkSession]":
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield spark
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def changes(spark: "SparkSession", feed: str) -> "DataFrame":
    made = spark.read.format("changefeed").options(feed=feed, pushFilters="true")
    return made.load()


def test_spark_pushes_filters_and_reuses_their_plan_for_another_scan_of_the_data_frame(
    pushing: "SparkSession", tmp_path: Path
) -> None:
    feed = a_log(tmp_path / "log", {"a": 10, "b": 0}, parts=1)
    of_keys = changes(pushing, feed).where("key IN ('a', 'x') AND key <=> 'a'")
    assert of_keys.count() == 10
    few = changes(pushing, feed).where("sequence <= 3")
    assert [x.sequence for x in few.select("sequence").collect()] == [1, 2, 3]
    both = changes(pushing, feed)
    low, high = both.where("sequence <= 3"), both.where("sequence > 3")
    union = sorted(x.sequence for x in low.union(high).select("sequence").collect())
    assert union != [*range(1, 11)], (
        "Spark plans each scan of a DataFrame anew now: let pushFilters be true by default, "
        "and take the warning out of docs/pipeline.md and pipeline/source/filters.py"
    )
