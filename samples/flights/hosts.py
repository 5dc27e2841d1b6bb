"""The host processes: what each of them is to do."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from changefeed.log.hashing import DEFAULT_PARTS

_PAGES = 40  # at least so many for each range, or a kill would hit nothing half done

# Short times, so that a failover can be watched. Real fleets have ten times these.
_SETTINGS = {
    "leases.expiration": 3,
    "feed.poll_interval": 0.2,
    "web.port": "off",
    "log.format": "json",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostJob:
    """What all hosts are to do. ``rate`` is in changes a second for each range."""

    feed: str
    leases: str
    observed: Path
    logs: Path
    page_size: int
    rate: float | None = None

    def command(self, name: str) -> Sequence[str]:
        settings = {**_SETTINGS, "feed.page_size": self.page_size}
        options: dict[str, object] = {"directory": self.observed}
        if self.rate is not None:
            options["rate"] = self.rate
        return [
            *(sys.executable, "-m", "changefeed", "run", "--stop-at-eof", f"--name={name}"),
            *(f"--feed={self.feed}", f"--leases={self.leases}"),
            "--observer=samples.flights.observer:CarrierDelays",
            *(f"--option={key}={value}" for key, value in options.items()),
            *(f"--set={key}={value}" for key, value in settings.items()),
        ]


def page_size(total: int) -> int:
    """Return how many changes hosts are to read at a time, of so many altogether."""
    return max(1, min(1000, total // DEFAULT_PARTS // _PAGES))
