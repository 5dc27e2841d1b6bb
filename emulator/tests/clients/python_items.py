"""Items one by one, and in batches, with Azure's client for Python."""

import time
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.exceptions import CosmosBatchOperationError

from emulator.tests.clients.python_trial import Trial, expect, item, status


class Items(Trial):
    """Items one by one."""

    def run(self) -> None:  # noqa: C901 - one function for each operation
        items = self.made("items", offer_throughput=12_000)

        def create() -> None:
            items.create_item(item("a", "p", 1))
            status(409, lambda: items.create_item(item("a", "p", 1)))

        def replace() -> None:
            items.replace_item("a", item("a", "p", 2))
            expect(2, items.read_item("a", "p")["n"])

        def upsert() -> None:
            items.upsert_item(item("b", "p", 1))
            expect(2, items.upsert_item(item("b", "p", 2))["n"])

        def patch() -> None:
            operations = [{"op": "set", "path": "/n", "value": 5}]
            operations.append({"op": "incr", "path": "/n", "value": 2})
            expect(7, items.patch_item("a", "p", operations)["n"])

        def condition() -> None:
            operations = [{"op": "set", "path": "/n", "value": 5}]
            rule = "FROM c WHERE c.n > 100"
            status(412, lambda: items.patch_item("a", "p", operations, filter_predicate=rule))

        def etags() -> None:
            same = MatchConditions.IfNotModified
            old = items.read_item("a", "p")["_etag"]

            def write() -> Any:
                body = item("a", "p", 8)
                return items.replace_item("a", body, etag=old, match_condition=same)

            write()
            status(412, write)

        def delete() -> None:
            items.delete_item("a", "p")
            status(404, lambda: items.delete_item("a", "p"))

        def read_many() -> None:
            names = [(f"many{i}", f"key{i}") for i in range(20)]
            for name, pk in names:
                items.create_item(item(name, pk))
            expect(20, len(items.read_items([*names, ("none", "p")])))

        def mortal() -> None:
            made = self.made("mortal", default_ttl=-1)
            made.create_item(item("a", "p", ttl=1))
            time.sleep(2.1)
            status(404, lambda: made.read_item("a", "p"))

        self.of("create an item", create)
        self.of("read an item", lambda: expect(1, items.read_item("a", "p")["n"]))
        self.of("read by a session token", lambda: self.session(items))
        self.of("replace an item", replace)
        self.of("upsert an item", upsert)
        self.of("patch an item", patch)
        self.of("patch under a condition", condition)
        self.of("write under an etag", etags)
        self.of("delete an item", delete)
        self.of("read many items", read_many)
        query = {"query": "SELECT * FROM c", "partition_key": "key7"}
        self.of(
            "read all items of a key",
            lambda: expect(1, len(list(items.query_items(**query)))),
        )
        self.of("time to live", mortal)

    def session(self, items: Any) -> None:
        items.upsert_item(item("later", "p", 1))
        token = self.client.client_connection.last_response_headers["x-ms-session-token"]
        own = items.feed_range_from_partition_key("p")
        expect(token, items.get_latest_session_token([(own, token)], own))
        items.read_item("later", "p", session_token=token)


class Batches(Trial):
    """Several operations at once."""

    def run(self) -> None:
        items = self.made("items")

        def batch() -> None:
            change = [{"op": "set", "path": "/n", "value": 3}]
            done = items.execute_item_batch(
                [
                    ("create", (item("c", "p", 1),)),
                    ("upsert", (item("d", "p", 1),)),
                    ("patch", ("d", change)),
                    ("read", ("d",)),
                    ("delete", ("b",)),
                ],
                "p",
            )
            expect([201, 201, 200, 200, 204], [x["statusCode"] for x in done])

        def failing() -> None:
            twice = [("create", (item("e", "p"),)), ("create", (item("c", "p"),))]
            try:
                items.execute_item_batch(twice, "p")
            except CosmosBatchOperationError as refused:
                expect([424, 409], [x["statusCode"] for x in refused.operation_responses])
            else:
                raise AssertionError("the batch worked")

        self.of("batch", batch)
        self.of("batch that fails as a whole", failing)
