"""An observer in a package of its own, installed beside the host."""

import logging
from collections.abc import Sequence

from changefeed.feeds.feed import Change

_log = logging.getLogger(__name__)


class Orders:
    """Logs each order. ``currency`` is an option: ``--option=currency=EUR``."""

    def __init__(self, currency: str = "EUR") -> None:
        self._currency = currency

    def process(self, changes: Sequence[Change]) -> None:
        for change in changes:
            _log.info("order %s: %s %s", change.id, change.value()["total"], self._currency)
