"""Vectors of many texts: some requests at once, patient with a model that throttles.

A text that is too long is embedded in parts, whose vectors are averaged. A request that the
model refuses is taken apart, to find the texts that it is about.
"""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from samples.vectors.models import Model, Refused, Throttled, TooLong, Vector

_TEXTS = 32
"""In one request."""
_MAX_WAIT = 120.0
"""For how many seconds one request waits for a model that throttles."""
_MIN_PART = 32
"""How many characters a text has that is not taken apart any more."""


class Embedding:
    """``vectors`` has those of the texts, by item, and ``refused`` says of the others why."""

    def __init__(self, model: Model, at_once: asyncio.Semaphore) -> None:
        self.vectors: dict[str, Vector] = {}
        self.refused: dict[str, str] = {}
        self._model = model
        self._at_once = at_once

    async def add(self, texts: Mapping[str, str]) -> None:
        """Embed these. Raise what says that the model cannot be reached."""
        items = list(texts.items())
        async with asyncio.TaskGroup() as group:
            for begin in range(0, len(items), _TEXTS):
                group.create_task(self._add(items[begin : begin + _TEXTS]))

    async def _add(self, items: Sequence[tuple[str, str]]) -> None:
        try:
            found = await self._ask([text for _, text in items])
        except (Refused, TooLong):
            for item, text in items:
                await self._add_one(item, text)
        else:
            self.vectors.update(zip([item for item, _ in items], found, strict=True))

    async def _add_one(self, item: str, text: str) -> None:
        try:
            self.vectors[item] = await self._whole_or_in_parts(text)
        except Refused as error:
            self.refused[item] = str(error)

    async def _whole_or_in_parts(self, text: str) -> Vector:
        """Embed a text that may be too long: then in halves, averaged by their lengths."""
        try:
            (vector,) = await self._ask([text])
        except TooLong:
            if len(text) <= _MIN_PART:
                raise Refused(f"it takes not even {len(text)} characters") from None
        else:
            return vector
        space = text.find(" ", len(text) // 2)
        cut = space if 0 < space < len(text) - 1 else len(text) // 2
        parts = [text[:cut], text[cut:]]
        vectors = [await self._whole_or_in_parts(x) for x in parts]
        weights = [len(x) for x in parts]
        return np.average(vectors, axis=0, weights=weights).astype(np.float32)

    async def _ask(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Ask the model; wait, and ask again, while it throttles."""
        loop = asyncio.get_running_loop()
        async with self._at_once:
            until = loop.time() + _MAX_WAIT
            while True:
                try:
                    return await self._model.embed(texts)
                except Throttled as error:
                    if loop.time() + error.seconds > until:
                        raise ConnectionError("the model throttles on and on") from error
                    await asyncio.sleep(error.seconds)
