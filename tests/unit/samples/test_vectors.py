"""The sample that keeps vectors, with a model behind HTTP that has its moods."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from changefeed.feeds.feed import Change, Operation
from changefeed.testing.observers import DeliveryResult, RecordingContext, deliver
from samples.vectors.indexing import VectorIndex
from samples.vectors.store import VectorStore
from tests.support import make

pytestmark = pytest.mark.real_time

MAX_CHARACTERS = 60
"""Of characters that the model takes."""


class Moods:
    """A vector is the length of a text; texts in ``refused`` are refused."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[list[str]] = []
        self.refused = {"bad"}
        self.throttles = 0
        self.is_down = False

    async def embed(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer opens it"
        if self.is_down:
            return self._error(500, "it fell over")
        if self.throttles:
            self.throttles -= 1
            return web.Response(status=429, headers={"Retry-After": "0"})
        texts = (await request.json())["input"]
        self.asked.append(texts)
        if self.refused & set(texts):
            return self._error(400, "against the rules")
        if max(map(len, texts)) > MAX_CHARACTERS:
            return self._error(400, "too long", "context_length_exceeded")
        return web.json_response({"data": [{"embedding": [len(x), 1.0]} for x in texts]})

    def _error(self, status: int, message: str, code: str = "") -> web.Response:
        return web.json_response({"error": {"message": message, "code": code}}, status=status)


@pytest.fixture
async def model() -> AsyncIterator[Moods]:
    moods, app = Moods(), web.Application()
    app.router.add_post("/v1/embeddings", moods.embed)
    async with TestServer(app) as server:
        moods.url = str(server.make_url("/v1"))
        yield moods


def item(sequence: int, name: str, text: str | None) -> Change:
    return make.change(
        sequence,
        key=name,
        item=name,
        operation=Operation.DELETE if text is None else Operation.REPLACE,
        body=b"" if text is None else json.dumps({"text": text}).encode(),
    )


async def index(
    model: Moods, place: Path, *changes: Change, context: RecordingContext | None = None
) -> DeliveryResult:
    key = place / "key"
    key.write_text("opens it\n")
    options: dict[str, Any] = {
        "database": str(place / "vectors.db"),
        "model": model.url,
        "key_file": str(key),
    }
    return await deliver(VectorIndex, changes, options=options, context=context)


def kept(place: Path) -> dict[str, tuple[str, float]]:
    """Return the text of each item and the first dimension of its vector."""
    with VectorStore(place / "vectors.db")._transaction() as store:
        rows = store.execute("select id, text, vector from vectors where vector is not null")
        return {x: (y, float(np.frombuffer(z, np.float32)[0])) for x, y, z in rows}


async def test_only_the_newest_text_of_an_item_is_embedded_and_only_if_it_is_new(
    model: Moods, tmp_path: Path
) -> None:
    await index(model, tmp_path, item(1, "a", "old"), item(2, "a", "newer"), item(3, "b", "b"))
    await index(model, tmp_path, item(4, "a", "newer"), item(5, "b", "other"))
    assert Counter(x for asked in model.asked for x in asked) == {
        "newer": 1,
        "b": 1,
        "other": 1,
    }
    assert kept(tmp_path) == {"a": ("newer", 5.0), "b": ("other", 5.0)}


async def test_what_comes_late_does_not_put_back_an_older_state_or_a_deleted_item(
    model: Moods, tmp_path: Path
) -> None:
    await index(model, tmp_path, item(3, "a", "newest"), item(4, "b", None))
    await index(model, tmp_path, item(1, "a", "older"), item(2, "b", "it lives"))
    assert kept(tmp_path) == {"a": ("newest", 6.0)}


async def test_a_refused_text_fails_alone_and_the_others_are_done(
    model: Moods, tmp_path: Path
) -> None:
    context = make.context()
    changes = [item(1, "a", "good"), item(2, "b", "bad"), item(3, "c", "good, too")]
    delivered = await index(model, tmp_path, *changes, context=context)
    assert "item b: against the rules" in str(delivered.failure)
    assert context.acknowledged == [1, 3]
    assert set(kept(tmp_path)) == {"a", "c"}


async def test_a_text_that_is_too_long_is_averaged_over_its_parts(
    model: Moods, tmp_path: Path
) -> None:
    text = "word " * 20
    delivered = await index(model, tmp_path, item(1, "a", text), item(2, "b", "short"))
    assert delivered.failure is None
    assert kept(tmp_path)["a"][1] == pytest.approx(50.0, abs=1)


async def test_a_model_that_throttles_is_asked_again_and_one_that_is_down_fails_the_batch(
    model: Moods, tmp_path: Path
) -> None:
    model.throttles = 3
    assert (await index(model, tmp_path, item(1, "a", "text"))).failure is None
    model.is_down = True
    failure = (await index(model, tmp_path, item(2, "a", "new"))).failure
    assert isinstance(failure, BaseExceptionGroup)
    assert "it fell over" in str(failure.exceptions[0])
    assert kept(tmp_path) == {"a": ("text", 4.0)}


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = tmp_path / "vectors.db"
    changes = [item(1, "a", "text"), item(2, "b", None)]
    await deliver(VectorIndex, changes, options={"database": str(database), "dry_run": True})
    assert (
        "4 characters of them, 1 items without a text, 1 texts embedded (nothing" in caplog.text
    )
    assert not database.exists()
