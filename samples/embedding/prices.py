"""The observer of these programs: it keeps the newest price of each article in memory."""

from collections.abc import Sequence

from changefeed import Change, Operation


class Prices:
    """A view in memory; to handle a change again gives the same view."""

    def __init__(self, newest: dict[str, float]) -> None:
        self._newest = newest

    async def process(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.operation is Operation.DELETE:
                self._newest.pop(change.key, None)
            else:
                self._newest[change.key] = change.value()["price"]
