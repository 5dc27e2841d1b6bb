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
        where = f"range {self.range_id!r}"
        if self.sequences is None:
            what = f"to open {where}"
        else:
            what = "on sequences {}..{} of ".format(*self.sequences) + where
        times = f"{self.attempts} attempt{'s' if self.attempts != 1 else ''}"
        return f"the observer failed {what}, {times}: {self.reason}"
