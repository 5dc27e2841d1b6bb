"""``changefeed run`` as users run it: started, looked at, stopped, and got wrong."""

import contextlib
import json
import os
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from tests.support.commands import (
    PLACES,
    QUICK,
    a_log_of,
    changefeed,
    owners,
    running,
    status,
)

RUN = ("run", *PLACES, *QUICK)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(1000, folder)
    return folder


async def test_sigterm_releases_the_leases_and_keeps_their_continuations(place: Path) -> None:
    options = ("--observer=jsonl", "--option=path=out.jsonl", "--name=anna")
    async with running(*RUN, *options, cwd=place) as host:
        await host.says('"event": "lease.acquired"', times=4)
        await host.reaches(lambda: all(x["lag"] == 0 for x in status(place)["ranges"]))
        assert owners(place) == ["anna"] * 4
        await host.stops()

    seen = status(place)
    assert seen["hosts"] == []
    assert [(x["owner"], x["lag"], x["epoch"]) for x in seen["ranges"]] == [(None, 0, 1)] * 4
    lines = [json.loads(x) for x in (place / "out.jsonl").read_text().splitlines()]
    assert sorted(x["body"]["n"] for x in lines) == list(range(1000))  # each exactly once
    assert [x["leases"] for x in host.events("host.stopping")] == [4]

    async with running(*RUN, *options, cwd=place) as host:
        await host.says('"event": "lease.acquired"', times=4)
        await host.stops(signal.SIGINT)
    assert len((place / "out.jsonl").read_text().splitlines()) == 1000  # it went on, not again


async def test_endpoints_answer_at_the_address_that_the_member_record_tells(
    place: Path,
) -> None:
    async with running(*RUN, "--observer=count", "--name=anna", cwd=place) as host:
        await host.says('"event": "lease.acquired"', times=4)
        (member,) = status(place)["hosts"]
        assert host.events("web.listening")[0]["address"] == member["address"]
        async with aiohttp.ClientSession(member["address"]) as session:

            async def get(path: str) -> tuple[int, str]:
                async with session.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/livez") == (200, '{"host":"anna","alive":true}')
            assert (await get("/readyz"))[0] == 200
            leases = json.loads((await get("/leases"))[1])["ranges"]
            code, metrics = await get("/metrics")
        assert len(leases) == 4
        assert code == 200
        assert 'service_instance_id="anna"' in metrics
        assert 'service_name="changefeed"' in metrics
        assert "changefeed_lease_owned" in metrics
        await host.stops()


STUCK = """
import threading, time, logging

def blocks(changes):
    logging.getLogger("mine").warning("stuck now", extra={"count": len(changes)})
    threading.Thread(target=time.sleep, args=(600,), name="forgotten", daemon=False).start()
    time.sleep(600)

async def blocks_the_loop(changes):
    logging.getLogger("mine").warning("stuck now")
    time.sleep(600)
"""


async def test_a_process_ends_though_threads_of_user_code_are_stuck(place: Path) -> None:
    (place / "stuck.py").write_text(STUCK)
    more = ("--observer=stuck:blocks", "--set=host.stop_timeout=0.5", "--name=anna")
    async with running(*RUN, *more, cwd=place) as host:
        await host.says("stuck now", times=4)
        (line, *_) = host.events("stuck now")
        assert (line["logger"], line["level"], line["count"] > 0) == ("mine", "warning", True)
        host.process.send_signal(signal.SIGTERM)
        assert await host.ends() == 1  # what was in hand is cut off, and comes again
    assert "incomplete" in host.events("host.stopped")[0]
    assert host.events("process.stuck")[0]["still_running"] == ["forgotten"] * 4


def test_a_process_that_only_a_person_can_mend_says_so_though_threads_are_stuck(
    place: Path,
) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()"
    (place / "hanging.py").write_text(thread)
    ended = changefeed(*RUN, "--observer=hanging:nope", cwd=place)
    assert (ended.returncode, "nope" in ended.stderr) == (2, True), "hosts would start it again"


async def test_user_code_that_blocks_the_event_loop_cannot_hold_up_the_end(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "stuck.py").write_text(STUCK)
    (place / "sitecustomize.py").write_text(
        "import changefeed.runtime.shutdown as it\nit._AT_ONCE = 0.5\n"  # seconds, not ten
    )
    monkeypatch.setenv("PYTHONPATH", str(place), prepend=os.pathsep)
    more = ("--observer=stuck:blocks_the_loop", "--set=host.stop_timeout=0.5")
    async with running(*RUN, *more, cwd=place) as host:
        await host.says("stuck now")
        host.process.send_signal(signal.SIGTERM)
        assert await host.ends() == 1
    assert len(host.events("process.stuck")) == 1


async def test_a_stop_before_the_start_is_over_is_an_orderly_one(place: Path) -> None:
    async with running(*RUN, "--observer=count", "--name=anna", cwd=place) as killed:
        await killed.says('"event": "lease.acquired"', times=4)
        killed.process.kill()
        await killed.ends()
    async with running(*RUN, "--observer=count", "--name=anna", cwd=place) as host:
        await host.says('"event": "host.waiting"')
        url = f"{host.events('web.listening')[0]['address']}/livez"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.status == 200, "it lives, and waits"
        await host.stops()


async def test_endpoints_that_cannot_be_imported_end_the_process_in_order(place: Path) -> None:
    code = "import sys; sys.modules['aiohttp.web'] = None\ndef process(changes): ...\n"
    (place / "breaks.py").write_text(code)
    async with running(*RUN, "--observer=breaks:process", cwd=place) as host:
        assert await host.ends() == 2
    assert "import of aiohttp.web halted" in host.said
    assert 'run without endpoints: web.port = "off"' in host.said
    assert {*owners(place)} == {None}


def test_a_port_in_use_is_told_before_anything_else_is_done(place: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = f"--set=web.port={other.getsockname()[1]}"
        ended = changefeed(*RUN, "--observer=log", port, cwd=place)
    assert ended.returncode == 2
    assert "another program has it" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (place / "leases.db").exists()
