"""What a query may cost: time, and rows that it looks at.

A query runs in a thread beside the loop. It asks its budget at each row and at each call of a
function, so it ends soon after its time is over or nobody waits for it any more.
"""

import threading
import time
from typing import Final

from cosmos_emulator.errors import CosmosError, bad_request

MAX_TEXT: Final = 4 * 1024 * 1024
"""So many characters a text can have that a query makes."""
_MAX_ROWS: Final = 1_000_000  # of some hundred bytes each, where they are kept
_STEPS_BETWEEN_LOOKS: Final = 256  # a look at the clock takes as long as a step


class Budget:
    """The budget of one query, or of one page of it. Each call raises 400 when it is spent."""

    def __init__(self, seconds: float, rows: int = _MAX_ROWS) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._rows = self._most_rows = rows
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


def checked_length(length: int) -> None:
    """Raise 400 before a text is made that is too long."""
    if length > MAX_TEXT:
        raise bad_request(f"The query makes a text longer than {MAX_TEXT} characters.")
