"""LangChain's and LangGraph's stores, and the agent memory, work by their usual use."""

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.clients.programs import lines_of, tools

pytestmark = pytest.mark.nightly
_STORIES = {
    *("vector_store", "semantic_cache", "chat_history", "saver", "store_of_memories"),
    *("node_cache", "agent_memory"),
}
_SECONDS = 150.0


async def test_tools_for_ai_work(url: str) -> None:
    where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
    lines = await lines_of(tools("tools.py"), where, _SECONDS)
    assert {x["operation"] for x in lines} == _STORIES
    assert [x for x in lines if x["result"] != "works"] == []
