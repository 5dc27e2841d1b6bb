"""Models that make vectors of texts: one on this machine, and all that speak OpenAI's API.

Three kinds of errors, one for each thing that the caller does about it; any other means that
the model cannot be reached, and is the host's to retry.
"""

import asyncio
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import aiohttp
import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]

_THROTTLED, _TOO_LARGE = 429, 413
_SECONDS = 60.0


class Throttled(Exception):
    """Ask again after so many ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class TooLong(Exception):
    """A text has more tokens than the model takes: give it in parts."""


class Refused(Exception):
    """The model does not take this text, now or later."""


class Model(Protocol):
    """``name`` is of the model and its version: vectors of two names cannot be compared."""

    name: str

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]: ...

    async def close(self) -> None: ...


_loading = threading.Lock()


@cache
def _loaded() -> Any:
    import wordllama  # type: ignore[import-untyped] # noqa: PLC0415 - the other model does without

    return wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, disable_download=True
    )


class LocalModel:
    """WordLlama, whose 256 dimensions come with its package: no account, no download."""

    name = "wordllama-l2-supercat-256"

    def __init__(self) -> None:
        with _loading:  # each range has an observer, and one model is enough for all
            self._model = _loaded()

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        return list(await asyncio.to_thread(self._model.embed, list(texts)))

    async def close(self) -> None: ...


class HttpModel:
    """A model behind OpenAI's API, at ``url`` (…/v1): OpenAI's, Azure's, vLLM's, Ollama's."""

    def __init__(self, url: str, name: str, key: str) -> None:
        self.name = name
        self._url = f"{url.rstrip('/')}/embeddings"
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}"} if key else None,
            timeout=aiohttp.ClientTimeout(total=_SECONDS),
        )

    async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
        asked = {"model": self.name, "input": list(texts)}
        async with self._session.post(self._url, json=asked) as answer:
            if answer.status == _THROTTLED:
                raise Throttled(float(answer.headers.get("Retry-After", "1")))
            if answer.status == _TOO_LARGE:
                raise TooLong
            body = await answer.json()
        error = body.get("error")
        if error is not None:
            about_length = "context_length" in str(error.get("code"))
            raise TooLong if about_length else _meant(answer.status, str(error.get("message")))
        return [np.array(x["embedding"], np.float32) for x in body["data"]]

    async def close(self) -> None:
        await self._session.close()


def _meant(status: int, message: str) -> Exception:
    """Return what an error means: of this text, or of the model or the key."""
    of_this_text = status in (400, 422)
    return Refused(message) if of_this_text else ConnectionError(f"{status}: {message}")
