"""The samples of the other end of the observer that posts, in Node and in Go."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, changefeed, running
from tests.support.ports import free_port
from tests.support.processes import started

SAMPLES = Path(__file__).parents[2] / "samples/http"
RECEIVERS = {
    "node": ("node", str(SAMPLES / "receiver.mjs")),
    "go": ("go", "run", str(SAMPLES / "receiver.go")),
}
BOOKINGS, ACCOUNTS = 60, 5
SPOILED = 23
"""The booking that names no account."""


def bookings() -> str:
    found = [
        {"k": f"k{n % ACCOUNTS}", "n": n} | ({} if n == SPOILED else {"account": "a"})
        for n in range(BOOKINGS)
    ]
    return "".join(json.dumps(x) + "\n" for x in found)


@pytest.mark.parametrize("language", RECEIVERS)
async def test_each_booking_is_handled_once_in_order_but_the_one_that_is_no_booking(
    language: str, tmp_path: Path
) -> None:
    program = RECEIVERS[language]
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed: apt-get install golang nodejs")
    (tmp_path / "secret").write_text("signed with this\n")
    made = changefeed(
        "produce", "log", "-", "--key=k", "--parts=2", cwd=tmp_path, stdin=bookings()
    )
    assert made.returncode == 0, made.stderr
    port = free_port()
    async with (
        started(*program, str(port), "secret", cwd=tmp_path) as receiver,
        running(
            "run",
            *PLACES,
            *QUICK,
            "--observer=http",
            f"--option=url=http://127.0.0.1:{port}/",
            "--option=secret_file=secret",
            "--set=observer.on_failure=dead-letter",
            "--set=observer.retry.attempts=2",
            "--set=observer.dead_letters=jsonl:letters",
            cwd=tmp_path,
        ) as host,
    ):
        await host.reaches(
            lambda: (
                receiver.printed.count("\n") == BOOKINGS - 1 and (tmp_path / "letters").exists()
            )
        )
        await host.stops()
    handled = [json.loads(x)["data"] for x in receiver.printed.splitlines()]
    by_key = defaultdict[str, list[int]](list)
    for x in handled:
        by_key[x["k"]].append(x["n"])
    assert by_key == {
        f"k{k}": [n for n in range(k, BOOKINGS, ACCOUNTS) if n != SPOILED]
        for k in range(ACCOUNTS)
    }
    (letter,) = (tmp_path / "letters").read_text().splitlines()
    assert json.loads(letter)["letter"]["change"]["key"] == f"k{SPOILED % ACCOUNTS}"
