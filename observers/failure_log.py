"""What goes wrong with an observer, in the log and in its trace: by hosts, and by tasks of
Spark.
"""

import logging
from collections.abc import Collection

from structlog.typing import FilteringBoundLogger

from changefeed.feeds.feed import RangeId
from changefeed.observers.dead_letters import DeadLetter
from changefeed.observers.error_text import kind_of, text_of, trace_of
from changefeed.observers.judge import Waiting
from changefeed.observers.tracing import in_batch, record_dead_letter


class FailureLog:
    """Writes to the log it is given. Ranges appear as ``range``."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        self._log = log
        self._trace = ""  # as last written: one failure of many changes is shown once

    def observer_retrying(
        self, range_id: RangeId, attempt: int, error: BaseException, delay: float
    ) -> None:
        fields: dict[str, object] = {"attempt": attempt, "again_after": round(delay, 3)}
        if attempt == 1 and self._trace != (trace := trace_of(error)):
            fields["exception"] = self._trace = trace
        with in_batch():
            self._failed(logging.WARNING, "attempt", range_id, error, **fields)

    def keys_wait(
        self, range_id: RangeId, waiting: Collection[Waiting], *, outage: bool
    ) -> None:
        """Note which keys wait for another try, the oldest first, if anybody looks."""

    def observer_gave_up(self, range_id: RangeId, error: BaseException, delay: float) -> None:
        fields = {"again_after": round(delay, 3)}
        self._failed(logging.ERROR, "all attempts", range_id, error, **fields)

    def observer_stuck(self, range_id: RangeId, error: BaseException) -> None:
        self._log.error("observer.stuck", range=range_id, error=str(error))

    def dead_letter(self, letter: DeadLetter) -> None:
        record_dead_letter(letter)
        self._log.error(
            "change.dead_lettered",
            range=letter.range_id,
            sequence=letter.sequence,
            key=letter.key,
            letter=letter.id,
            attempts=letter.attempts,
            error=letter.failure.text,
            kind=letter.failure.kind,
        )

    def close_failed(self, range_id: RangeId, error: BaseException) -> None:
        self._failed(logging.ERROR, "close", range_id, error)

    def _failed(
        self, level: int, what: str, range_id: RangeId, error: BaseException, **more: object
    ) -> None:
        fields = {"error": text_of(error), "kind": kind_of(error), **more}
        self._log.log(level, "observer.failed", what=what, range=range_id, **fields)
