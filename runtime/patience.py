"""How long a refusal is taken for something that passes.

An account that is moved, a key that is being renewed, a proxy that starts again: servers
refuse a request once, and answer it a moment later. A host that ended for the first refusal
would take its fleet along, as all hosts ask the same server. So a refusal that a server has
*answered* counts as no answer at first, and is asked again like one. Only one that lasts
is told to a person.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeVar

from changefeed.runtime.errors import UserError

T = TypeVar("T")
_SILENCE: Final = 60.0


@dataclass(slots=True)
class _Refusals:
    """Since when there were only refusals, and when the last one came."""

    since: float
    last: float


class Patience:
    """Waits for ``seconds`` before it believes a refusal, for each kind of question.

    Between two questions may pass any time: where nobody has asked for a minute, the time
    begins anew.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._refusals: dict[Hashable, _Refusals] = {}

    async def ask(
        self, question: Hashable, call: Awaitable[T], unavailable: Callable[[str], Exception]
    ) -> T:
        """Await a call; raise ``unavailable(text)`` in the place of a refusal that may pass."""
        asked = asyncio.get_running_loop().time()
        try:
            answer = await call
        except UserError as refusal:
            if refusal.may_pass and not self._has_lasted(question, asked):
                raise unavailable(str(refusal)) from refusal
            raise
        self._refusals.pop(question, None)
        return answer

    def _has_lasted(self, question: Hashable, asked: float) -> bool:
        now = asyncio.get_running_loop().time()
        known = self._refusals.get(question)
        if known is None or asked - known.last > _SILENCE:
            known = self._refusals[question] = _Refusals(since=asked, last=now)
        known.last = now
        return now - known.since >= self._seconds
