"""A broker that writes down when each write of records to its row began and ended.

``python -m benchmarks.brokers.timed_broker broker …`` is the command, with lines of two
moments (``time.monotonic``, which all processes of a machine share) in the file that
``BENCH_PUTS`` names. Timed is the write with its syncs, in the thread that does it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from changefeed.cli import main
from changefeed.log.stores import local_store
from changefeed.log.stores.frame_writer import FrameWriter


class TimedWriter(FrameWriter):
    puts = Path(os.environ["BENCH_PUTS"]).open("a", buffering=1)  # noqa: SIM115

    def append(self, objects: Sequence[bytes]) -> bool:
        began = monotonic()
        durable = super().append(objects)
        self.puts.write(f"{began} {monotonic()}\n")
        return durable


if __name__ == "__main__":
    vars(local_store)[FrameWriter.__name__] = TimedWriter  # in the place of the one it makes
    main()
