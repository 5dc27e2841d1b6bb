"""The errors of observers, one for each thing the caller does about it.

ObserverError
├── ObserverRefused   it cannot be used as it is: stop, and tell a person
└── ObserverFailed    it raised as often as it was allowed to: the changes are not done
"""

from feeds.feed import RangeId


class ObserverError(Exception):
    """Something an observer could not do; trying the same again does not help."""


class ObserverRefused(ObserverError):
    """Not found, not importable, or of a shape nobody can call. The text is the advice."""


class ObserverFailed(ObserverError):
    """It raised on every attempt. The last error is the cause.

    ``sequences`` are the first and the last of the batch; ``None`` if it failed to open.
    """

    def __init__(
        self,
        range_id: RangeId,
        sequences: tuple[int, int] | None,
        attempts: int,
        reason: str,
    ) -> None:
        super().__init__(range_id, sequences, attempts, reason)  # so that it pickles
        self.range_id = range_id
        self.sequences = sequences
        self.attempts = attempts
        self.reason = reason

    def __str__(self) -> str:
        what = (
            "to open"
            if self.sequences is None
            else "on sequences {}..{}".format(*self.sequences)
        )
        return (
            f"the observer failed {what} of range {self.range_id!r}, "
            f"{self.attempts} attempts: {self.reason}"
        )
