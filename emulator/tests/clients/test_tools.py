"""LangChain's and LangGraph's stores, agent memory and Spring Data work by their usual use."""

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.clients.programs import java, lines_of, tools

pytestmark = pytest.mark.nightly
_STORIES = {
    *("vector_store", "semantic_cache", "chat_history", "saver", "store_of_memories"),
    *("node_cache", "agent_memory", "testcontainers"),
}
_OF_SPRING = {
    *("container", "save and find", "etags", "auditing", "unique keys", "patch"),
    *("derived queries", "pages and sort", "slices", "queries in words", "count and exists"),
    *("reactive", "delete"),
}
_SECONDS = 150.0


async def test_tools_for_ai_work(url: str) -> None:
    where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
    lines = await lines_of(tools("tools.py"), where, _SECONDS)
    assert {x["operation"] for x in lines} == _STORIES
    assert [x for x in lines if x["result"] != "works"] == []


async def test_spring_data_works(url: str) -> None:
    where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
    lines = await lines_of(java("Spring", module="spring"), where, _SECONDS)
    assert {x["operation"] for x in lines} == _OF_SPRING
    assert [x for x in lines if x["result"] != "works"] == []
