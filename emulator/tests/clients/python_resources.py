"""Databases, containers, keys, throughput and scripts with Azure's client for Python."""

import time
from functools import partial
from typing import Any, Final

from azure.cosmos import PartitionKey, ThroughputProperties

from emulator.tests.clients.python_trial import Trial, expect, item, status

_ALL: Final = "SELECT * FROM c"
_UNIQUE: Final = {"uniqueKeys": [{"paths": ["/n"]}]}


class Resources(Trial):
    """Databases and containers."""

    def run(self) -> None:
        self.of("create and read a database", self.create_database)
        self.of("list and query databases", self.list_databases)
        self.containers()

    def create_database(self) -> None:
        self.client.create_database_if_not_exists(self.name)
        account = self.client.get_database_account() if self.wide else None
        assert account is None or account.WritableLocations  # the other client has no such call
        status(409, lambda: self.client.create_database(self.name))
        status(404, self.client.get_database_client("none").read)

    def list_databases(self) -> None:
        assert self.name in [x["id"] for x in self.client.list_databases()]
        text = f"SELECT * FROM c WHERE c.id = '{self.name}'"
        expect(1, len(list(self.client.query_databases(text))))

    def containers(self) -> None:
        def create() -> None:
            made = self.database.create_container("plain", PartitionKey("/pk"))
            expect(["/pk"], made.read()["partitionKey"]["paths"])

        def listed() -> None:
            expect(["plain"], [x["id"] for x in self.database.list_containers()])
            text = "SELECT * FROM c WHERE c.id = 'plain'"
            expect(1, len(list(self.database.query_containers(text))))

        def replace() -> None:
            key = PartitionKey("/pk")
            self.database.replace_container("plain", key, default_ttl=-1)
            expect(-1, self.database.get_container_client("plain").read()["defaultTtl"])

        self.of("create and read a container", create)
        self.of("list and query containers", listed)
        self.of("replace a container", replace)
        self.of("delete a container", lambda: self.database.delete_container("plain"))


class Keys(Trial):
    """Unique and hierarchical keys, and deletes by key."""

    def run(self) -> None:
        def unique() -> None:
            items = self.made("unique", unique_key_policy=_UNIQUE)
            items.create_item(item("a", "p", 1))
            status(409, lambda: items.create_item(item("b", "p", 1)))
            items.create_item(item("b", "other", 1))

        def nested() -> None:
            key = PartitionKey(["/tenant", "/user", "/session"], kind="MultiHash")
            items = self.database.create_container("nested", key)
            for i in range(12):
                body = {"tenant": f"t{i % 2}", "user": f"u{i % 3}", "session": i}
                items.create_item({"id": f"i{i}", **body})
            expect(5, items.read_item("i5", ["t1", "u2", 5])["session"])

        def prefix() -> None:
            items = self.database.get_container_client("nested")
            text = "SELECT * FROM c"
            expect(6, len(list(items.query_items(text, partition_key=["t1"]))))

        def delete() -> None:
            items = self.made("emptied")
            for i in range(10):
                items.create_item(item(f"i{i}", "p" if i < 7 else "q"))
            items.delete_all_items_by_partition_key("p")
            left = 10
            for _ in range(50):  # an account deletes in the background
                left = len(list(items.read_all_items()))
                if left == 3:
                    break
                time.sleep(0.1)
            expect(3, left)

        self.of("unique keys", unique)
        self.of("hierarchical partition keys", nested)
        self.of("query of a prefix of a hierarchical key", prefix)
        self.of("delete all items of a partition key", delete)


class Throughput(Trial):
    """What was provisioned."""

    def run(self) -> None:
        def manual() -> None:
            made = self.made("manual", offer_throughput=500)
            expect(500, made.get_throughput().offer_throughput)
            made.replace_throughput(700)
            expect(700, made.get_throughput().offer_throughput)

        def autoscale() -> None:
            most = ThroughputProperties(auto_scale_max_throughput=20_000)
            made = self.made("scaled", offer_throughput=most)
            expect(20_000, made.get_throughput().auto_scale_max_throughput)
            expect(3, len(list(made.read_feed_ranges())))

        def shared() -> None:
            name = f"{self.name}-shared"
            made = self.client.create_database(name, offer_throughput=600)
            expect(600, made.get_throughput().offer_throughput)
            self.client.delete_database(name)

        self.of("read and replace throughput", manual)
        self.of("autoscale throughput", autoscale)
        self.of("throughput of a database", shared)


_CREATES = """function (name) {
  var items = getContext().getCollection(), item = {id: name, pk: "p"};
  items.createDocument(items.getSelfLink(), item, {}, function (error, made) {
    if (error) throw error;
    getContext().getResponse().setBody(made.id.length);
  });
}"""
_STAMPS = """function () {
  var request = getContext().getRequest(), item = request.getBody();
  item.stamped = true;
  request.setBody(item);
}"""


class Scripts(Trial):
    """Code that runs in the account, and its conflicts."""

    def run(self) -> None:
        made = self.made("scripted")
        scripts = made.scripts

        def procedures() -> None:
            scripts.create_stored_procedure({"id": "s", "body": _CREATES})
            given = {"params" if self.wide else "parameters": ["new"]}  # of the other client
            run = partial(scripts.execute_stored_procedure, "s", partition_key="p", **given)
            expect(3, run())
            expect("new", made.read_item("new", "p")["id"])
            status(400, run)
            scripts.replace_stored_procedure("s", {"id": "s", "body": "function s() {}"})
            expect("function s() {}", scripts.get_stored_procedure("s")["body"])
            expect(["s"], [x["id"] for x in scripts.list_stored_procedures()])
            expect(["s"], [x["id"] for x in scripts.query_stored_procedures(_ALL)])
            scripts.delete_stored_procedure("s")
            status(404, lambda: scripts.get_stored_procedure("s"))

        def triggers() -> None:
            trigger = {"id": "t", "triggerType": "Pre", "triggerOperation": "Create"}
            scripts.create_trigger(trigger | {"body": _STAMPS})
            made.create_item(item("stamped", "p"), pre_trigger_include="t")
            expect(True, made.read_item("stamped", "p")["stamped"])
            expect(["t"], [x["id"] for x in scripts.list_triggers()])
            changed = trigger | {"triggerType": "Post", "body": "function t() {}"}
            scripts.replace_trigger("t", changed)
            expect("Post", scripts.get_trigger("t")["triggerType"])
            expect(["t"], [x["id"] for x in scripts.query_triggers(_ALL)])
            scripts.delete_trigger("t")

        def functions() -> None:
            scripts.create_user_defined_function({"id": "f", "body": "function f() {}"})
            expect("f", scripts.get_user_defined_function("f")["id"])
            scripts.replace_user_defined_function("f", {"id": "f", "body": "function g() {}"})
            expect(["f"], [x["id"] for x in scripts.list_user_defined_functions()])
            found = list(scripts.query_user_defined_functions(_ALL))
            expect(["function g() {}"], [x["body"] for x in found])
            scripts.delete_user_defined_function("f")

        self.of("stored procedures", procedures)
        self.of("triggers", triggers)
        self.of("user-defined functions", functions)
        self.of("conflict feed", lambda: self.conflicts(made))

    def conflicts(self, made: Any) -> None:
        """Look for conflicts: writes in one region have none."""
        found = [*made.list_conflicts(), *made.query_conflicts(_ALL, partition_key="p")]
        expect([], found)
        status(404, lambda: made.get_conflict("none", partition_key="p"))
        status(404, lambda: made.delete_conflict("none", partition_key="p"))


class Users(Trial):
    """Users, and what their tokens open."""

    def run(self) -> None:
        made = self.made("opened")
        self.of("users", self.users)
        self.of("permissions", lambda: self.permissions(made))

    def users(self) -> None:
        self.database.create_user({"id": "u"})
        self.database.upsert_user({"id": "v"})
        self.database.replace_user("v", {"id": "w"})
        expect(["u", "w"], sorted(x["id"] for x in self.database.list_users()))
        expect(["u", "w"], sorted(x["id"] for x in self.database.query_users(_ALL)))
        expect("w", self.database.get_user_client("w").read()["id"])
        self.database.delete_user("w")
        status(404, self.database.get_user_client("w").read)

    def permissions(self, made: Any) -> None:
        user = self.database.get_user_client("u")
        allowed = {"id": "p", "permissionMode": "Read", "resource": made.container_link}
        user.create_permission(allowed)
        user.upsert_permission(allowed | {"permissionMode": "All"})
        expect("All", user.get_permission("p").permission_mode)
        user.replace_permission("p", allowed)
        expect(["p"], [x["id"] for x in user.list_permissions()])
        expect(["Read"], [x["permissionMode"] for x in user.query_permissions(_ALL)])
        user.delete_permission("p")
        status(404, lambda: user.get_permission("p"))
