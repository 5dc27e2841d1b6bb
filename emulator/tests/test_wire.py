"""What clients look for in an answer, each as it goes over the wire."""

import json
from typing import Any

import pytest

from emulator.tests.by_hand import DOCS, Hand

ITEM = {"id": "1", "pk": "p", "n": 3, "tags": ["red"]}
QUERY = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}


async def asked(by_hand: Hand, text: str, *, key: str = "p", **parameters: Any) -> Any:
    given = [{"name": f"@{k}", "value": v} for k, v in parameters.items()]
    body = {"query": text, "parameters": given}
    return await by_hand.send("POST", DOCS, body, QUERY, key=key)


async def test_a_container_names_its_procedure_for_conflicts_also_where_there_is_none(
    by_hand: Hand,
) -> None:
    found = await by_hand.send("GET", "/dbs/d/colls/c")
    assert found.body["conflictResolutionPolicy"]["conflictResolutionProcedure"] == ""


async def test_every_answer_says_how_long_it_took(by_hand: Hand) -> None:
    for path in ("/dbs/d", "/dbs/none"):
        answer = await by_hand.send("GET", path)
        assert float(answer.headers["x-ms-request-duration-ms"]) >= 0


async def test_metrics_of_a_query_are_told_to_who_asks(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, ITEM, key="p")
    both = ("x-ms-documentdb-populatequerymetrics", "x-ms-cosmos-populateindexmetrics")
    body = {"query": "SELECT * FROM c", "parameters": []}
    wanted = QUERY | dict.fromkeys(both, "true")
    answer = await by_hand.send("POST", DOCS, body, wanted, key="p")
    metrics = dict(
        x.split("=") for x in answer.headers["x-ms-documentdb-query-metrics"].split(";")
    )
    assert (metrics["retrievedDocumentCount"], metrics["outputDocumentCount"]) == ("1", "1")
    assert float(metrics["totalExecutionTimeInMs"]) >= 0
    assert answer.headers["x-ms-cosmos-index-utilization"]
    plain = await by_hand.send("POST", DOCS, body, QUERY, key="p")
    assert "x-ms-documentdb-query-metrics" not in plain.headers


async def test_an_upsert_that_inserts_does_not_ask_for_an_etag(by_hand: Hand) -> None:
    upsert = {"x-ms-documentdb-is-upsert": "true", "If-Match": '"old"'}
    assert (await by_hand.send("POST", DOCS, ITEM, upsert, key="p")).status == 201
    assert (await by_hand.send("POST", DOCS, ITEM, upsert, key="p")).status == 412


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        ("SELECT VALUE c[@name] FROM c", "n", [3]),
        ("SELECT VALUE c[@name][0] FROM c", "tags", ["red"]),
        ("SELECT VALUE c.tags[@name] FROM c", 0, ["red"]),
        ("SELECT VALUE c.id FROM c WHERE c[@name] = 3 ORDER BY c[@name]", "n", ["1"]),
        ("SELECT VALUE c[@name] FROM c", True, []),
    ],
)
async def test_a_property_can_be_named_by_a_parameter(
    by_hand: Hand, text: str, key: Any, found: list[Any]
) -> None:
    await by_hand.send("POST", DOCS, ITEM, key="p")
    answer = await asked(by_hand, text, name=key)
    assert answer.body["Documents"] == found


async def test_a_query_is_known_by_either_header(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, ITEM, key="p")
    body = {"query": "SELECT VALUE c.n FROM c", "parameters": []}
    headers = {"x-ms-documentdb-query": "True", "Content-Type": "application/json"}
    answer = await by_hand.send("POST", DOCS, body, headers, key="p")
    assert answer.body["Documents"] == [3]


async def test_a_change_feed_without_changes_says_that_there_are_none(by_hand: Hand) -> None:
    answer = await by_hand.feed()
    assert (answer.status, answer.headers["x-ms-item-count"]) == (304, "0")


async def test_as_many_conditions_are_read_as_the_account_says(by_hand: Hand) -> None:
    await by_hand.send("POST", DOCS, ITEM, key="p")
    account = (await by_hand.send("GET", "/")).body
    most = json.loads(account["queryEngineConfiguration"])["maxLogicalOrPerSqlQuery"]
    ors = " OR ".join(f"c.n = {x}" for x in range(most + 1))
    assert (await asked(by_hand, f"SELECT VALUE c.n FROM c WHERE {ors}")).body["Documents"]


async def test_an_account_has_the_name_by_which_clients_keep_their_address(
    by_hand: Hand,
) -> None:
    account = (await by_hand.send("GET", "/")).body
    assert account["id"] == "localhost"
    (place,) = account["readableLocations"]
    assert place == {"name": "South Central US", "databaseAccountEndpoint": by_hand.url}


@pytest.mark.parametrize(
    "limit", [{"requests_per_second": 1, "container": "none"}, {"effect": "drop"}]
)
async def test_a_limit_on_what_is_not_there_is_refused(
    by_hand: Hand, limit: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError, match=r"none|no limit"):
        await by_hand.control("POST", "throttle", **limit)


async def test_a_fault_on_what_is_not_there_is_refused(by_hand: Hand) -> None:
    fault = {"effect": "drop", "operation": "create_item", "container": "none"}
    with pytest.raises(AssertionError, match="none"):
        await by_hand.control("POST", "faults", **fault)


@pytest.mark.parametrize("path", ["ready", "alive"])
async def test_it_says_that_it_is_there(by_hand: Hand, path: str) -> None:
    async with by_hand.session.get(f"{by_hand.url}{path}") as answer:
        assert answer.status == 200
