"""Queries and change feeds with Azure's client for Python."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from emulator.tests.clients.python_trial import Trial, expect, item

_QUERIES: Final = json.loads((Path(__file__).parent / "queries.json").read_text())


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
        for query in _QUERIES:

            def found(text: str = query["text"], wanted: list[Any] = query["results"]) -> None:
                expect(wanted, list(items.query_items(text, parameters=given, **self.wide)))

            self.of(query["operation"], found)
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
        self.of("feed ranges", lambda: self.ranges(items))
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

    def ranges(self, items: Any) -> None:
        parts = list(items.read_feed_ranges())
        expect(2, len(parts))
        of_key = items.feed_range_from_partition_key("k5")
        expect(1, sum(bool(items.is_feed_range_subset(x, of_key)) for x in parts))

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
