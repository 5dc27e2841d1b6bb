"""Queries and change feeds with Azure's client for Python."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from emulator.tests.clients.python_trial import Trial, expect, item

_QUERIES: Final[list[tuple[str, str, list[Any]]]] = [
    ("query with parameters", "SELECT VALUE c.id FROM c WHERE c.n = @n", ["i04"]),
    ("query with TOP", "SELECT TOP 2 VALUE c.pk FROM c WHERE c.pk = 'k3'", ["k3", "k3"]),
    (
        "query with ORDER BY",
        "SELECT VALUE c.id FROM c WHERE c.n > 27 ORDER BY c.n DESC",
        ["i29", "i28"],
    ),
    (
        "query with ORDER BY of what is missing",
        "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n",
        ["i13", "i00"],
    ),
    (
        "query with ORDER BY of several values",
        "SELECT TOP 3 VALUE c.id FROM c WHERE c.n > 0 ORDER BY c.pk DESC, c.n ASC",
        ["i06", "i20", "i27"],
    ),
    (
        "query with OFFSET and LIMIT",
        "SELECT VALUE c.n FROM c WHERE c.n > 1 ORDER BY c.n OFFSET 3 LIMIT 2",
        [5, 6],
    ),
    ("query with COUNT", "SELECT VALUE COUNT(1) FROM c WHERE c.n < 10", [10]),
    ("query with SUM and AVG", "SELECT VALUE SUM(c.n) FROM c WHERE c.n < 4", [6]),
    ("query with SUM and AVG", "SELECT VALUE AVG(c.n) FROM c WHERE c.n < 4", [1.5]),
    ("query with MIN and MAX", "SELECT VALUE MIN(c.n) FROM c", [0]),
    ("query with MIN and MAX", "SELECT VALUE MAX(c.id) FROM c", ["i29"]),
    (
        "query with columns of aggregates",
        "SELECT COUNT(1) AS count, MAX(c.n) AS most FROM c",
        [{"count": 30, "most": 29}],
    ),
    (
        "query with GROUP BY",
        "SELECT c.pk, COUNT(1) AS n FROM c WHERE c.pk = 'k1' GROUP BY c.pk",
        [{"pk": "k1", "n": 5}],
    ),
    (
        "query with DISTINCT",
        "SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk",
        [f"k{i}" for i in range(7)],
    ),
    (
        "query with JOIN",
        "SELECT c.id, t FROM c JOIN t IN c.tags WHERE c.n = 5",
        [{"id": "i05", "t": "t1"}, {"id": "i05", "t": "t2"}],
    ),
    (
        "query with LIKE",
        "SELECT VALUE c.id FROM c WHERE c.id LIKE '%_7' ORDER BY c.id",
        ["i07", "i17", "i27"],
    ),
    (
        "query with IN and BETWEEN",
        "SELECT VALUE c.n FROM c WHERE c.n IN (3, 99) OR c.n BETWEEN 28 AND 40 ORDER BY c.n",
        [3, 28, 29],
    ),
    (
        "query with a ternary and ??",
        (
            "SELECT VALUE (c.n > 13 ? 'high' : c.m ?? 'low') FROM c WHERE c.n IN (3, 14) "
            "ORDER BY c.n"
        ),
        ["low", "high"],
    ),
    (
        "query with EXISTS and ARRAY",
        (
            "SELECT ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) AS tags FROM c "
            "WHERE c.n = 4 AND EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t = 't1')"
        ),
        [{"tags": ["T0", "T1"]}],
    ),
    (
        "query with functions",
        (
            "SELECT VALUE CONCAT(SUBSTRING(c.id, 0, 2), '-', ToString(FLOOR(c.n / 2))) FROM c "
            "WHERE STARTSWITH(c.id, 'i2') AND ARRAY_CONTAINS(c.tags, 't2') AND c.n > 25"
        ),
        ["i2-13", "i2-14"],
    ),
    (
        "query of the nearest vectors",
        (
            "SELECT TOP 2 c.id FROM c ORDER BY "
            "VectorDistance(c.v, [7.2, 1], false, {'distanceFunction': 'euclidean'})"
        ),
        [{"id": "i07"}, {"id": "i08"}],
    ),
    (
        "query by rank of texts and vectors",
        (
            "SELECT TOP 1 c.id FROM c ORDER BY RANK "
            "RRF(FullTextScore(c.words, 'w7'), VectorDistance(c.v, [7, 1]))"
        ),
        [{"id": "i07"}],
    ),
]


class Queries(Trial):
    """Queries over two ranges: item i00 to i29, with the keys k0 to k6, and n, or not."""

    def run(self) -> None:
        order = [{"path": "/pk", "order": "descending"}, {"path": "/n", "order": "ascending"}]
        indexing = {
            "includedPaths": [{"path": "/*"}],
            "compositeIndexes": [order],
        }
        items = self.made("queried", offer_throughput=12_000, indexing_policy=indexing)
        for i in range(30):
            tags = [f"t{i % 2}", f"t{i % 3}"]
            body = item(f"i{i:02}", f"k{i % 7}", None if i == 13 else i, tags=tags)
            items.upsert_item(body | {"v": [i, 1], "words": f"w{i} red"})
        given = [{"name": "@n", "value": 4}]
        for operation, text, wanted in _QUERIES:

            def found(text: str = text, wanted: list[Any] = wanted) -> None:
                expect(wanted, list(items.query_items(text, parameters=given, **self.wide)))

            self.of(operation, found)
        top = "SELECT TOP 2 VALUE c.id FROM c ORDER BY c.n DESC"
        self.of(
            "query of a partition key",
            lambda: expect(["i23", "i16"], list(items.query_items(top, partition_key="k2"))),
        )

        def of_ranges() -> None:
            ranges = list(items.read_feed_ranges())
            text = "SELECT VALUE c.id FROM c"
            found = [x for r in ranges for x in items.query_items(text, feed_range=r)]
            expect((2, 30), (len(ranges), len(set(found))))

        def in_pages(text: str) -> None:
            found = list(items.query_items(text, max_item_count=4, **self.wide))
            expect((30, 30), (len(found), len(set(found))))

        self.of("query of a feed range", of_ranges)
        self.of("query in pages", lambda: in_pages("SELECT VALUE c.id FROM c"))
        ordered = "SELECT VALUE c.id FROM c ORDER BY c.pk"
        self.of("query with ORDER BY in pages", lambda: in_pages(ordered))

        def function() -> None:
            twice = {"id": "twice", "body": "function (x) { return 2 * x; }"}
            items.scripts.create_user_defined_function(twice)
            text = "SELECT VALUE udf.twice(c.n) FROM c WHERE c.id = 'i04'"
            expect([8], list(items.query_items(text, **self.wide)))

        self.of("query with a user-defined function", function)


class Feeds(Trial):
    """The change feed, pulled."""

    def run(self) -> None:
        items = self.made("fed", offer_throughput=12_000)
        for i in range(20):
            items.create_item(item(f"i{i}", f"k{i}", i))
        read = items.query_items_change_feed

        def count(wanted: int, **options: Any) -> None:
            expect(wanted, len({x["id"] for x in read(**options)}))

        def of_ranges() -> None:
            ranges = list(items.read_feed_ranges())
            found = [x for r in ranges for x in read(feed_range=r, start_time="Beginning")]
            expect(20, len(found))

        before = datetime.now(UTC) - timedelta(minutes=10)
        self.of("feed ranges", lambda: expect(2, len(list(items.read_feed_ranges()))))
        self.of("change feed from the beginning", lambda: count(20, start_time="Beginning"))
        self.of("change feed of each range", of_ranges)
        self.of(
            "change feed of a partition key",
            lambda: count(1, start_time="Beginning", partition_key="k5"),
        )
        self.of("change feed from a point in time", lambda: count(20, start_time=before))
        one = self.made("fed-by-one")  # a token over several ranges cannot be resumed
        self.of("change feed from now, and on", lambda: self.resumed(one))
        self.of(
            "change feed of all versions and deletes",
            lambda: self.resumed(one, mode="AllVersionsAndDeletes"),
        )

    def resumed(self, items: Any, **options: Any) -> None:
        """Read nothing from now; then what was written since, behind the same etag."""
        pages: list[Any] = []  # the client puts the position into the headers afterwards
        read = items.query_items_change_feed
        found = list(
            read(start_time="Now", response_hook=lambda x, *_: pages.append(x), **options)
        )
        expect([], found)
        items.create_item(item("short", "k1", 1))
        items.upsert_item(item("short", "k1", 2))
        found = list(read(continuation=pages[-1]["etag"], **options))
        if options:
            kinds = [x["metadata"]["operationType"] for x in found]
            expect(["create", "replace"], kinds)
        else:
            expect([2], [x["n"] for x in found])
        items.delete_item("short", "k1")
