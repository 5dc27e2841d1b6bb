"""A broker that writes down when each put of an object with records began and ended.

``python -m benchmarks.brokers.timed_broker broker …`` is the command, with lines of two
moments (``time.monotonic``, which all processes of a machine share) in the file that
``BENCH_PUTS`` names. Timed is the write with its syncs, in the thread that does it.
"""

import os
from pathlib import Path
from time import monotonic

from changefeed.cli import main
from changefeed.log.stores import addresses
from changefeed.log.stores.local_store import LocalStore


class TimedStore(LocalStore):
    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._puts = Path(os.environ["BENCH_PUTS"]).open("a", buffering=1)  # noqa: SIM115

    def _write(self, key: str, data: bytes, *, replace: bool) -> bool:
        began = monotonic()
        created = super()._write(key, data, replace=replace)
        if key.startswith("wal/"):
            self._puts.write(f"{began} {monotonic()}\n")
        return created


if __name__ == "__main__":
    vars(addresses)[LocalStore.__name__] = TimedStore  # in the place of the one it opens
    main()
