"""User-defined functions of a query: each call goes to V8, and waits for the answer."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import msgspec

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import UNDEFINED, decoded_object
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.sandbox import COMPILE_ERROR, SECONDS, Sandbox, Sandboxes, failed


class UserFunctions:
    """The functions of one container, for one page of a query, in one thread.

    ``source_of`` gives the body of a function by its name, or raises 404.
    """

    def __init__(
        self, sandboxes: Sandboxes, source_of: Callable[[str], str], budget: Budget
    ) -> None:
        self._sandboxes = sandboxes
        self._source_of = source_of
        self._budget = budget
        self._opened = ExitStack()
        self._sandbox: Sandbox | None = None

    def named(self, name: str) -> Callable[..., Any]:
        """Return a function of values of JSON; 400 if it is not there, or no function."""
        try:
            source = self._source_of(name)
        except CosmosError as error:
            raise bad_request(error.message) from error
        if self._sandbox is None:
            seconds = min(SECONDS, self._budget.seconds_left())
            self._sandbox = self._opened.enter_context(self._sandboxes.opened(seconds))
        sandbox = self._sandbox
        wrong = sandbox.call("__define", msgspec.json.encode([name, source]).decode())
        if wrong:
            raise bad_request(f"{name!r} cannot be compiled: {wrong}", COMPILE_ERROR)
        return lambda *values: _called(sandbox, name, values)

    def close(self) -> None:
        self._opened.close()


def _called(sandbox: Sandbox, name: str, values: tuple[Any, ...]) -> Any:
    missing = [i for i, x in enumerate(values) if x is UNDEFINED]
    sent = [name, [None if x is UNDEFINED else x for x in values], missing]
    answer = decoded_object(
        sandbox.call("__apply", msgspec.json.encode(sent).decode()).encode()
    )
    if "failure" in answer:
        raise failed(f"Exception = {answer['failure']['message']}")
    return answer.get("result", UNDEFINED)
