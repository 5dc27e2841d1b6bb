"""Two hosts whose ownership is in Redis and whose checkpoints are in Azure Blob.

Half way through the feed, Redis forgets all that the fleet keeps there. The hosts create
their leases again and go on from the checkpoints: in the end, every change was handled.
``python -m samples.redis_and_blob --help`` lists what can be set.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from redis import Redis

from .servers import AZURITE_KEY, azurite, redis

FLEET = "redis-and-blob"
_PATIENCE = 60.0
_BATCH = 20
_QUICK = (
    f"--set=feed.page_size={_BATCH}",
    f"--set=observer.max_unacknowledged={_BATCH}",
    "--set=feed.poll_interval=0.1",
    "--set=leases.expiration=3",
)


def main(
    changes: int = 2000,
    ownership: Annotated[str, typer.Option(help="A Redis; one is started if not given.")] = "",
    checkpoints: Annotated[str, typer.Option(help="A blob container; likewise.")] = "",
) -> None:
    """Produce changes, run two hosts, make Redis forget, and count what was handled."""
    with ExitStack() as started:
        place = Path(started.enter_context(tempfile.TemporaryDirectory()))
        ownership = ownership or started.enter_context(redis(place))
        checkpoints = checkpoints or started.enter_context(azurite(place))
        _produce(place, range(changes))
        print(f"{changes} changes are in the log; ownership: {ownership},")
        print(f"checkpoints: {checkpoints}")
        with _hosts(place, f"{ownership}?fleet={FLEET}", checkpoints) as hosts:
            _until(lambda: len(handled(place)) >= changes // 2, hosts)
            print(f"{len(handled(place))} are handled; now Redis forgets the fleet")
            _forget(ownership)
            _until(lambda: len(handled(place)) == changes, hosts)
        times = handled(place)
    repeats = times.total() - len(times)
    print(f"all {len(times)} changes are handled, {repeats} of them again: no host lost any")


def handled(place: Path) -> Counter[int]:
    """How often each change was handled so far, by its number."""
    file = place / "seen.jsonl"
    if not file.exists():
        return Counter()
    lines = file.read_text().splitlines(keepends=True)
    return Counter(json.loads(x)[3] for x in lines if x.endswith("\n"))


def _produce(place: Path, numbers: range) -> None:
    lines = "".join(f'{{"k": "key-{n % 50}", "n": {n}}}\n' for n in numbers)
    command = [*_changefeed("produce"), "log", "-", "--key=k", "--parts=8"]
    subprocess.run(  # noqa: S603 - our own command
        command,
        input=lines,
        text=True,
        check=True,
        cwd=place,
        env=_environment(),
        stdout=subprocess.DEVNULL,
    )


@contextmanager
def _hosts(
    place: Path, ownership: str, checkpoints: str
) -> Iterator["subprocess.Popen[bytes]"]:
    command = [
        *(*_changefeed("run"), "--processes=2", "--feed=eventlog:log", *_QUICK),
        *(f"--set=leases.address={ownership}", f"--set=leases.checkpoints={checkpoints}"),
        *("--set=leases.create=true", "--observer=samples.redis_and_blob.seen:Seen"),
        f"--option=file={place / 'seen.jsonl'}",
    ]
    with (place / "hosts.log").open("wb") as log:
        hosts = subprocess.Popen(  # noqa: S603 - likewise
            command, cwd=place, env=_environment(), stdout=log, stderr=log
        )
    try:
        yield hosts
    finally:
        hosts.send_signal(signal.SIGTERM)
        if hosts.wait(_PATIENCE) != 0:
            print((place / "hosts.log").read_text(), file=sys.stderr)
            raise SystemExit("the hosts did not stop in order")


def _forget(address: str) -> None:
    """Delete what Redis keeps of this fleet, and of no other."""
    with Redis.from_url(address) as client:
        for key in client.scan_iter(f"changefeed:{{{FLEET}}}:*"):
            client.delete(key)


def _until(true: Callable[[], bool], hosts: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + _PATIENCE
    while not true():
        if hosts.poll() is not None or time.monotonic() > until:
            raise SystemExit("the hosts do not get on")
        time.sleep(0.05)


def _changefeed(command: str) -> list[str]:
    return [sys.executable, "-m", "changefeed", command]


def _environment() -> Mapping[str, str]:
    here = str(Path(__file__).parents[2])
    key = {"CHANGEFEED_BACKENDS__BLOB__KEY": AZURITE_KEY}
    return key | os.environ | {"PYTHONPATH": here}


if __name__ == "__main__":
    typer.run(main)
