"""Items by query, over a real emulator: pages, ranges that move, keys and ids."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import pytest
from azure.cosmos import PartitionKey
from pyspark.sql.datasource import EqualTo, Filter, StringStartsWith
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from changefeed.feeds.cosmos import items as cosmos_items
from changefeed.feeds.cosmos.items import Query
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.pipeline.items import spark as items_in_spark
from changefeed.pipeline.items.item_reader import ItemAccess, Question
from changefeed.runtime.errors import UserError
from cosmos_emulator.testing import account_in_thread
from tests.support.item_reading import found, item_reader
from tests.support.pipeline_cosmos import ServedCosmos, put, served_cosmos, written

# Of azure-cosmos, on what it does with its loops.
pytestmark = pytest.mark.filterwarnings("default")
IDS = StructType([StructField("id", StringType())])
THROTTLING: dict[str, Any] = {
    "effect": "error",
    "operation": "query_items",
    "status": 429,
    "retry_after_ms": 1,
}
EVERY = Query(text="SELECT * FROM c")


@pytest.fixture
def cosmos() -> Iterator[ServedCosmos]:
    with served_cosmos(ranges=3) as made:
        yield made


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cosmos_items, "_PAGE", 4)


def feed_of(cosmos: ServedCosmos) -> dict[str, str]:
    return {"feed": cosmos.address(None)}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("seed", range(6))
def test_whatever_becomes_of_ranges_while_they_are_read_each_item_is_found_once(
    cosmos: ServedCosmos, seed: int
) -> None:
    random = Random(seed)
    cosmos.put(80)
    access = ItemAccess(cosmos.address(None))
    planned = access.ranges()
    names = list[str]()
    shakes = 0
    for x in planned:
        asked = Question(query=EVERY, identity=access.identity(), of=x)
        for page in access.results(asked):
            names += [json.loads(bytes(y))["id"] for y in page]
            if random.random() < 0.4 and shakes < 6:
                cosmos.shake(random)
                shakes += 1
    access.close()
    assert shakes > 1
    assert Counter(names) == Counter(f"i{n}" for n in range(80))


@pytest.mark.usefixtures("small_pages")
def test_a_throttled_container_is_asked_again_and_a_silent_one_is_given_up(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put(20)
    cosmos.do(cosmos.world.fault(**THROTTLING, times=5))
    assert len(found(feed_of(cosmos), IDS)) == 20
    cosmos.do(cosmos.world.fault(**THROTTLING))
    access = ItemAccess(cosmos.address(None), patience=0.5)
    asked = Question(query=EVERY, identity=access.identity(), of=access.ranges()[0])
    with pytest.raises(FeedUnavailable, match="throttles"):
        list(access.results(asked))
    access.close()


def test_a_container_that_was_made_anew_after_the_plan_is_refused(cosmos: ServedCosmos) -> None:
    cosmos.put(5)
    reader = item_reader(feed_of(cosmos), IDS)
    tasks = reader.partitions()
    cosmos.make_anew(ranges=3)
    with pytest.raises(FeedRefused, match="recreated"):
        list(reader.read(tasks[0]))


def test_a_container_is_opened_once_for_plans_and_tasks_and_anew_where_it_was_recreated(
    cosmos: ServedCosmos, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()

    def opening(address: str, *more: Any) -> ItemAccess:
        opened.append(address)
        return ItemAccess(address, *more)

    monkeypatch.setattr(items_in_spark, "ItemAccess", opening)
    for count in (1, 2):
        cosmos.put(5)
        for _ in range(2):
            assert len(found(feed_of(cosmos), IDS)) == 5
        assert len(opened) == count
        cosmos.make_anew(ranges=3)


def test_a_budget_is_shared_by_the_tasks_that_can_spend_it(cosmos: ServedCosmos) -> None:
    cosmos.put(30)
    few = {**feed_of(cosmos), "maxRUPerSecond": "1500", "priority": "low"}
    (task,) = item_reader(few, IDS).partitions()
    assert len(task.value) == 3
    assert len(found(few, IDS)) == 30
    assert len(item_reader({**few, "maxRUPerSecond": "5000"}, IDS).partitions()) == 3


def test_a_query_finds_what_it_says_and_is_refused_where_ranges_cannot_answer_it(
    cosmos: ServedCosmos,
) -> None:
    cosmos.put(30, keys=5)
    feed = feed_of(cosmos)
    rows = found({**feed, "query": "SELECT c.id FROM c WHERE c.id < 'i2'"})
    expected = sorted(x for x in (f"i{n}" for n in range(30)) if x < "i2")
    assert sorted(json.loads(x["body"])["id"] for x in rows) == expected
    newest = "SELECT TOP 2 c.id FROM c ORDER BY c.id DESC"
    assert found({**feed, "query": newest, "partitionKey": "k1"}, IDS) == [
        {"id": "i6"},
        {"id": "i26"},
    ]
    for text, word in {
        newest: "ORDER BY and TOP",
        "SELECT DISTINCT c.pk FROM c": "DISTINCT",
        "SELECT VALUE COUNT(1) FROM c": "an aggregate",
        "SELECT COUNT(1) AS n FROM c": "NonValueAggregate",
        "SELECT c.pk FROM c GROUP BY c.pk": "has GROUP BY,",
        "SELECT c.pk, MAX(c.n) AS n FROM c GROUP BY c.pk": "has GROUP BY,",
        "SELECT TOP 3 c.id FROM c ORDER BY RANK FullTextScore(c.id, 'i')": "HybridSearch",
        "SELECT * FROM c OFFSET 1 LIMIT 2": "OFFSET and LIMIT",
        "SELECT * FRM c": "Syntax error",
    }.items():
        with pytest.raises(FeedRefused, match=word):
            found({**feed, "query": text})


KEYS: Sequence[Any] = ("ada", "=5", "==", 5, 5.5, True, None, {}, -(1 << 40))


def test_items_are_found_by_their_ids_and_keys_whatever_keys_there_are() -> None:
    named = [(f"i{n % 3}", key) for n, key in enumerate(KEYS)] + [("i0", "other")]
    items = [
        {"id": x, "n": n} | ({} if y == {} else {"pk": y}) for n, (x, y) in enumerate(named)
    ]
    wanted = [[x, y] for x, y in named[:-1]]
    schema = StructType([StructField("n", IntegerType()), StructField("key", StringType())])
    with account_in_thread() as account:
        feed = written(account.url, PartitionKey("/pk"), items)
        options = {**feed, "itemIds": json.dumps([*wanted, *wanted, ["gone", "ada"]])}
        rows = found({**options, "columns": "key"}, schema)
        assert sorted(x["n"] for x in rows) == [*range(len(KEYS))]
        for row in rows:
            of_key = {**feed, "partitionKey": row["key"]}
            assert found({**of_key, "columns": "key"}, schema) == [row]
            name = json.dumps([named[row["n"]][0], "no"])  # of which there is none
            assert found({**of_key, "itemIds": name, "columns": "key"}, schema) == [row]
        assert found({**feed, "itemIds": "[]"}) == []


def test_many_ids_are_asked_for_in_a_few_queries_and_not_one_by_one() -> None:
    items = [{"id": f"i{n}", "a": f"a{n % 7}", "b": {"c": n % 5}} for n in range(900)]
    by_two = PartitionKey(["/a", "/b/c"], kind="MultiHash")
    ids = [[x["id"], x["a"], n % 5] for n, x in enumerate(items)]
    with account_in_thread() as account:
        feed = written(account.url, by_two, items)
        account.control("DELETE", "requests")
        rows = found({**feed, "itemIds": json.dumps(ids)}, IDS)
        asked = account.control("GET", "requests")
        prefix = {**feed, "partitionKey": '["a1"]'}
        with pytest.raises(UserError, match="it has 2 levels"):
            found(prefix, IDS)
        whole = {**feed, "partitionKey": '["a1", 1]'}
        assert {x["id"] for x in found(whole, IDS)} == {f"i{n}" for n in range(1, 900, 35)}
    assert Counter(x["id"] for x in rows) == Counter(x["id"] for x in items)
    assert sum(asked["query_items"].values()) < 10
    assert "read_item" not in asked


def test_items_that_lack_levels_of_their_key_are_found_by_what_it_has() -> None:
    by_two = PartitionKey(["/a", "/b/c"], kind="MultiHash")
    keys: list[list[Any]] = [
        ["a", {}],
        [{}, "c"],
        [{}, {}],
        [None, "c"],
        ["a", "c"],
        [{}, -(1 << 60)],
    ]
    with account_in_thread() as account:
        feed = written(account.url, by_two, [])
        for n, (a, c) in enumerate(keys):
            item = {"id": f"i{n}", "a": a, "b": {"c": c} if c != {} else {}}
            whole = {x: y for x, y in item.items() if y != {} or x == "b"}
            put(account.url, whole, [a, c])
        account.split("d", "k", range="0")
        for n, key in enumerate(keys):
            of_key = {**feed, "partitionKey": json.dumps(key)}
            by_id = {**feed, "itemIds": json.dumps([[f"i{n}", *key]])}
            assert found(of_key, IDS) == found(by_id, IDS) == [{"id": f"i{n}"}]


ODD_NAMES = (
    *('a"b', "it's", "[x]", "$v", "select", "value", "order", "root", "c", "", " ", "a.b"),
    *("a\\b", "a\nb", "`q`", "@p0", "{x}", "%s", "\0n", "é", "\U0001f600", "key", "body"),
    *(f"column {n}" for n in range(300)),
)


def test_fields_are_found_and_compared_whatever_their_names_are() -> None:
    written_to = [
        {"id": f"i{n}", "pk": "k", **{x: f"{x} {n}" for x in ODD_NAMES}} for n in range(3)
    ]
    schema = StructType([StructField(x, StringType()) for x in ("id", *ODD_NAMES)])
    wanted: list[Filter] = [
        *(EqualTo((x,), f"{x} 1") for x in ODD_NAMES[:25]),
        *(StringStartsWith((x,), x) for x in ODD_NAMES[:25] if x),
    ]
    with account_in_thread() as account:
        feed = written(account.url, PartitionKey("/pk"), written_to)
        rows = found(feed, schema)
        assert [{"pk": "k", **x} for x in sorted(rows, key=lambda x: x["id"])] == written_to
        (row,) = found({**feed, "pushFilters": "true"}, schema, wanted)
        assert row["id"] == "i1"


def test_ids_alone_are_enough_where_they_are_the_partition_key() -> None:
    with account_in_thread() as account:
        feed = written(account.url, PartitionKey("/id"), [{"id": f"i{n}"} for n in range(9)])
        rows = found({**feed, "itemIds": '["i1", "i8", "i9", "i1"]'}, IDS)
        assert sorted(x["id"] for x in rows) == ["i1", "i8"]


def test_an_id_without_its_key_is_refused(cosmos: ServedCosmos) -> None:
    feed = feed_of(cosmos)
    for ids, key, said in (
        ('["i1"]', None, r"\(/pk\): it has 1 levels"),
        ('[["i1", "k", "more"]]', None, "it has 1 levels"),
        ('[["i1", ["k"]]]', None, "no partition key"),
        ('[["i1", "k"]]', "k", "say it once"),
    ):
        options = {**feed, "itemIds": ids} | ({} if key is None else {"partitionKey": key})
        with pytest.raises(UserError, match=said):
            item_reader(options, IDS).partitions()
