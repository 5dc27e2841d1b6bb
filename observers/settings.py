"""How observers are called, and when one that failed is called again: later and later."""

from typing import Literal, Protocol

from pydantic import Field

from changefeed.runtime.settings import Seconds, Section


class RetrySettings(Section):
    """How often and how late a change that failed is tried again: after half a second,
    and each time after twice as long, up to ``max_delay`` seconds. Chance takes away up to half
    of each delay. ``attempts`` is how many failures count against a change before it is put
    aside, and how many in a row before the observer is opened anew; ``None`` means that neither
    ever happens.
    """

    max_delay: Seconds = 60.0
    attempts: int | None = Field(default=10, ge=1)


class ObservingSettings(Protocol):
    """What hosts and tasks of Spark have alike in their own sections."""

    @property
    def checkpoint(self) -> str | float:
        """When checkpoints are written; ``manual`` leaves it to the user to say so."""
        ...

    @property
    def concurrency(self) -> int: ...

    @property
    def timeout(self) -> float | None: ...

    @property
    def retry(self) -> RetrySettings: ...

    @property
    def on_failure(self) -> str:
        """With ``retry`` no failure counts against a change: it is tried until it succeeds."""
        ...

    @property
    def ordering(self) -> Literal["key", "range"]: ...
