"""Tools on top of Azure's client, most of them for AI, by their usual use.

They run in an environment of their own, which knows nothing of this project: each story prints
a line of JSON.

COSMOS_ENDPOINT and COSMOS_KEY say where.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.agent_memory import CosmosMemoryClient
from langchain_azure_cosmosdb import (
    AzureCosmosDBNoSqlSemanticCache,
    AzureCosmosDBNoSqlVectorSearch,
    CosmosDBCacheSync,
    CosmosDBChatMessageHistory,
    CosmosDBSaverSync,
    CosmosDBStore,
)
from langchain_core.embeddings import Embeddings
from langchain_core.messages import HumanMessage
from langchain_core.outputs import Generation
from langgraph.graph import END, START, StateGraph
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

URL, KEY = os.environ["COSMOS_ENDPOINT"], os.environ["COSMOS_KEY"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = ("a red bike", "a blue car", "a green car in the rain", "zebras")


class Letters(Embeddings):  # type: ignore[misc]
    """Embeds a text by how often it has each letter: like texts are near each other."""

    def embed_query(self, text: str) -> list[float]:
        return [text.lower().count(x) + 0.01 for x in LETTERS]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(x) for x in texts]

    def generate(self, text: str) -> list[float]:
        """Embed a text, under the name that agent memory has for it."""
        return self.embed_query(text)

    def generate_batch(self, texts: list[str]) -> list[list[float]]:
        return self.embed_documents(texts)


def policies(index: str) -> dict[str, Any]:
    return {
        "vector_embedding_policy": {
            "vectorEmbeddings": [
                {
                    "path": "/embedding",
                    "dataType": "float32",
                    "distanceFunction": "cosine",
                    "dimensions": len(LETTERS),
                }
            ]
        },
        "indexing_policy": {
            "indexingMode": "consistent",
            "includedPaths": [{"path": "/*"}],
            "excludedPaths": [{"path": '/"_etag"/?'}],
            "vectorIndexes": [{"path": "/embedding", "type": index}],
        },
        "vector_search_fields": {"text_field": "text", "embedding_field": "embedding"},
        "cosmos_container_properties": {"partition_key": PartitionKey("/id")},
        "cosmos_database_properties": {},
    }


def vector_store(client: CosmosClient) -> None:
    with_texts = policies("flat")
    with_texts["indexing_policy"]["fullTextIndexes"] = [{"path": "/text"}]
    store = AzureCosmosDBNoSqlVectorSearch(
        cosmos_client=client,
        embedding=Letters(),
        database_name="tools",
        full_text_policy={
            "defaultLanguage": "en-US",
            "fullTextPaths": [{"path": "/text", "language": "en-US"}],
        },
        full_text_search_enabled=True,
        **with_texts,
    )
    ids = store.add_texts([*TEXTS], metadatas=[{"n": n} for n in range(len(TEXTS))])

    def best(query: str, **how: Any) -> list[str]:
        found = store.similarity_search_with_score(query, k=2, **how)
        return [x.page_content for x, _ in found]

    assert best("zebra")[0] == "zebras"
    assert best("a blue car")[0] == "a blue car"
    assert best("blue", search_type="vector_score_threshold", threshold=0.1)
    ranks = [{"search_field": "text", "search_text": "cars rain"}]
    ranked = best("", search_type="full_text_ranking", full_text_rank_filter=ranks)
    assert ranked[0] == TEXTS[2], ranked
    hybrid = {"search_type": "hybrid", "full_text_rank_filter": ranks}
    assert best("a green car in the rain", **hybrid)[0] == TEXTS[2]
    weighted = best("zebras", weights=[0.1, 5.0], **hybrid)
    assert weighted[0] == "zebras", weighted
    held = best(
        "", search_type="full_text_search", where="FullTextContainsAll(c.text, 'green', 'car')"
    )
    assert held == [TEXTS[2]], held
    spread = store.max_marginal_relevance_search("a car", k=2, fetch_k=3)
    assert len(spread) == 2
    store.delete(ids[:1])
    assert "a red bike" not in best("a red bike")


def semantic_cache(client: CosmosClient) -> None:
    cache = AzureCosmosDBNoSqlSemanticCache(
        embedding=Letters(),
        cosmos_client=client,
        database_name="tools",
        container_name="cache",
        score_threshold=0.5,
        **policies("quantizedFlat"),
    )
    cache.update("who sings?", "a model", [Generation(text="birds")])
    assert cache.lookup("who sings", "a model") == [Generation(text="birds")]


def chat_history(_: CosmosClient) -> None:
    def opened() -> CosmosDBChatMessageHistory:
        history = CosmosDBChatMessageHistory(URL, "tools", "chats", "s", "u", credential=KEY)
        history.prepare_cosmos()
        return history

    opened().add_messages([HumanMessage("hello"), HumanMessage("again")])
    assert [x.content for x in opened().messages] == ["hello", "again"]
    opened().clear()
    assert opened().messages == []


def saver(_: CosmosClient) -> None:
    keeper = CosmosDBSaverSync("tools", "checkpoints", endpoint=URL, key=KEY)
    graph = StateGraph(dict)
    graph.add_node("add", lambda state: {"n": state.get("n", 0) + 1})
    graph.add_edge(START, "add")
    graph.add_edge("add", END)
    app = graph.compile(checkpointer=keeper)
    of: Any = {"configurable": {"thread_id": "1"}}
    app.invoke({"n": 1}, of)
    app.invoke({"n": 5}, of)
    assert app.get_state(of).values == {"n": 6}
    assert len([*app.get_state_history(of)]) >= 4
    other: Any = {"configurable": {"thread_id": "2"}}
    assert app.get_state(other).values == {}


def store_of_memories(client: CosmosClient) -> None:
    index: Any = {"dims": len(LETTERS), "embed": Letters(), "fields": ["text"]}
    store = CosmosDBStore(client, database_name="tools", container_name="store", index=index)
    store.setup()
    for name, text in enumerate(TEXTS):
        store.put(("users", "1"), str(name), {"text": text})
    assert store.get(("users", "1"), "0").value == {"text": TEXTS[0]}
    found = store.search(("users",), query="zebra", limit=1)
    assert [x.value["text"] for x in found] == ["zebras"]
    assert store.list_namespaces(prefix=("users",)) == [("users", "1")]
    store.delete(("users", "1"), "0")
    assert store.get(("users", "1"), "0") is None


def node_cache(_: CosmosClient) -> None:
    cache: Any = CosmosDBCacheSync("tools", "nodes", endpoint=URL, key=KEY)
    cache.set({(("a",), "k"): ({"n": 1}, None)})
    assert cache.get([(("a",), "k")]) == {(("a",), "k"): {"n": 1}}
    cache.clear()
    assert cache.get([(("a",), "k")]) == {}


def agent_memory(_: CosmosClient) -> None:
    memory = CosmosMemoryClient(
        cosmos_endpoint=URL,
        cosmos_key=KEY,
        cosmos_database="memories",
        embedding_dimensions=len(LETTERS),
        embeddings_client=Letters(),
        use_default_credential=False,
    )
    memory.connect_cosmos()
    memory.create_memory_store()
    for n, text in enumerate(TEXTS):
        memory.upsert_memory(
            user_id="u", thread_id=f"t{n}", content=text, memory_type="fact", role="user"
        )
    found = memory.search_cosmos("zebra", user_id="u", top_k=2)
    assert found[0]["content"] == "zebras", found
    memory.add_tags(found[0]["id"], "u", found[0]["thread_id"], "fact", ["animal"])
    tagged = memory.search_cosmos("a car", user_id="u", tags_any=["animal"])
    assert [x["content"] for x in tagged] == ["zebras"], tagged
    assert len(memory.get_memories(user_id="u")) == len(TEXTS)


def testcontainers(_: CosmosClient) -> None:
    """It waits as the README says. There is no Docker here: the container is this process."""
    port = urlsplit(URL).port
    ready = HttpWaitStrategy(port, "/ready")
    with mock.patch("testcontainers.core.container.DockerClient"):
        cosmos = DockerContainer("cosmos-emulator").with_exposed_ports(port)
        cosmos.waiting_for(ready)
    with (
        mock.patch.object(cosmos, "get_exposed_port", return_value=port),
        mock.patch.object(cosmos, "get_container_host_ip", return_value="localhost"),
    ):
        ready.with_startup_timeout(10).wait_until_ready(cosmos)


STORIES = (
    vector_store,
    semantic_cache,
    chat_history,
    saver,
    store_of_memories,
    node_cache,
    agent_memory,
    testcontainers,
)


def tell(story: Callable[[CosmosClient], None]) -> None:
    result, reason = "works", ""
    try:
        with CosmosClient(URL, KEY) as client:
            story(client)
    except Exception as thrown:  # noqa: BLE001 - whatever it is, it is printed
        result, reason = "failed", f"{type(thrown).__name__}: {thrown}"[:1500]
    line = {"operation": story.__name__, "result": result, "reason": reason}
    sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    for story in STORIES:
        tell(story)
