"""What was said for long enough: it may be done, as nobody has taken it back."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class GracePeriod(Generic[K, V]):
    """Since when something is said of each key, in this process. ``seconds`` are to pass."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[K, tuple[V, float]] = {}

    def is_over(self, key: K, said: V, now: float) -> bool:
        """Whether the same was said for so long; what is said first, or anew, begins it."""
        before, since = self._since.get(key, (None, now))
        assert since <= now, f"{key} was said at {since} to be gone, and it is {now}"
        if before != said:
            self._since[key] = (said, now)
            return False
        return now - since >= self._seconds
