"""What goes wrong with an observer in a task, told in the log, in the words of the host."""

import structlog

from feeds.feed import RangeId
from observers.dead_letters import DeadLetter

_log = structlog.get_logger("changefeed")


class TaskJournal:
    """The events of one task. It counts nothing: no metrics leave an executor."""

    def __init__(self, host: str, epoch: int) -> None:
        self._log = _log.bind(host=host, epoch=epoch)

    def observer_retrying(
        self, range_id: RangeId, attempt: int, error: BaseException, delay: float
    ) -> None:
        self._log.warning(
            "observer.failed",
            range=range_id,
            attempt=attempt,
            error=str(error),
            kind=type(error).__name__,
            again_after=round(delay, 3),
        )

    def observer_gave_up(self, range_id: RangeId, error: BaseException, delay: float) -> None:
        self._log.error(
            "observer.gave_up",
            range=range_id,
            error=str(error),
            kind=type(error).__name__,
            again_after=round(delay, 3),
        )

    def dead_letter(self, letter: DeadLetter) -> None:
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
        self._log.error(
            "observer.close_failed",
            range=range_id,
            error=str(error),
            kind=type(error).__name__,
        )
