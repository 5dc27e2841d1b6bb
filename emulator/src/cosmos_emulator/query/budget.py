"""What a query may cost: time, the rows it looks at, and what it makes.

A query runs in a thread beside the loop. It asks its budget at each row and at each call of a
function, so it ends soon after its time is over or nobody waits for it any more. What it makes
is weighed as it would be written: a few names for one large value can mean more than any memory
holds.
"""

import threading
import time
from typing import Any, Final

from cosmos_emulator.errors import CosmosError, bad_request

_MAX_SIZE: Final = 4 * 1024 * 1024
"""So large can a value be that a query makes: characters, and members of arrays and objects."""
_MAX_MADE: Final = 64 * _MAX_SIZE  # for a page, as all of it may be kept
_MAX_ROWS: Final = 1_000_000  # of some hundred bytes each, where they are kept
_STEPS_BETWEEN_LOOKS: Final = 256  # a look at the clock takes as long as a step


class Budget:
    """The budget of one query, or of one page of it. Each call raises 400 when it is spent."""

    def __init__(self, seconds: float, rows: int = _MAX_ROWS) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._rows = self._most_rows = rows
        self._made = 0
        self._steps = _STEPS_BETWEEN_LOOKS
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End the query at its next step: nobody waits for it. Any thread may call this."""
        self._stopped.set()

    def row(self) -> None:
        """Count a row of the query, or of one inside it."""
        self._rows -= 1
        if self._rows < 0:
            raise bad_request(
                f"The query looks at more than {self._most_rows} rows for a page. Narrow it: "
                f"by a partition key, by a condition, by fewer joins."
            )
        self.step()

    def step(self) -> None:
        """Count what takes some time."""
        self._steps -= 1
        if self._steps <= 0:
            self._steps = _STEPS_BETWEEN_LOOKS
            self.seconds_left()

    def made(self, value: Any) -> Any:
        """Count a value that the query makes, and return it."""
        if isinstance(value, str | list | dict):
            self._made += self._weight(value)
            if self._made > _MAX_MADE:
                raise bad_request(
                    f"The query makes values of more than {_MAX_MADE} characters and members "
                    f"for a page. Narrow it, or ask for smaller pages."
                )
        return value

    def walk(self, *values: Any) -> None:
        """Count the steps of a walk through arrays and objects that is about to be made."""
        for value in values:
            if isinstance(value, list | dict):
                self._weight(value)

    def _weight(self, value: Any) -> int:
        """Return the size of a value; what it has twice counts twice."""
        size, waiting = 0, [value]
        while waiting:
            part = waiting.pop()
            if isinstance(part, str):
                size += len(part)
            elif isinstance(part, list):
                size += len(part)
                waiting += part
            elif isinstance(part, dict):
                size += sum(map(len, part))
                waiting += part.values()
            check_size(size)
            self.step()
        return size

    def seconds_left(self) -> float:
        """Return the time that is left, which is above zero."""
        left = self._end - time.monotonic()
        if left <= 0 or self._stopped.is_set():
            raise self.spent()
        return left

    def spent(self) -> CosmosError:
        return bad_request(
            f"The query takes more than {self._seconds:g} seconds for a page. Narrow it, or "
            f"start the emulator with a larger --query-seconds."
        )


def check_size(size: int) -> None:
    """Raise 400 before a value is made, or walked through, that is too large."""
    if size > _MAX_SIZE:
        raise bad_request(
            f"The query makes a value of more than {_MAX_SIZE} characters and members."
        )
