"""Which names, pages and machines the emulator answers to."""

import asyncio
import json
import socket
from pathlib import Path

import aiohttp
import pytest

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import Account, running
from emulator.tests.by_hand import DOCS, Hand, hand, signed
from emulator.tests.process import process

ELSEWHERE = "http://elsewhere.example"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("127.0.0.1:8081", 200),
        ("[::1]:8081", 200),
        ("localhost:8081", 200),
        ("cosmos:8081", 200),  # of a compose file
        ("cosmos.shop.svc.cluster.local", 200),
        ("host.docker.internal:8081", 200),
        ("cosmos.invalid", 200),
        ("emulator.example:8081", 200),  # by --host-name
        ("elsewhere.example:8081", 403),
        ("127.0.0.1.elsewhere.example", 403),
        ("localhost.elsewhere.example:8081", 403),
    ],
)
async def test_a_name_that_anybody_can_give_this_machine_is_refused(
    name: str, status: int
) -> None:
    settings = EmulatorSettings(port=0, host_names=("emulator.example",))
    async with running(settings) as url, aiohttp.ClientSession() as session:
        for path, headers in (("", signed("GET", "/", settings.key)), ("_emulator", {})):
            async with session.get(url + path, headers=headers | {"Host": name}) as got:
                text = await got.text()
                assert got.status == status, path
                assert status == 200 or "--host-name" in text


@pytest.mark.parametrize("origin", [ELSEWHERE, "null", "http://127.0.0.1:1"])
async def test_a_page_from_elsewhere_drives_nothing(by_hand: Hand, origin: str) -> None:
    """A browser sends such a request without asking first, and says where it is from."""
    where = f"{by_hand.url}_emulator/reset"
    async with by_hand.session.post(where, data="{}", headers={"Origin": origin}) as got:
        assert got.status == 403
    item, key = {"id": "1", "pk": "p"}, "p"
    assert (await by_hand.send("POST", DOCS, item, {"Origin": origin}, key=key)).status == 403
    assert len(await by_hand.control("GET", "")) == 1
    assert (await by_hand.send("GET", f"{DOCS}/1", key=key)).status == 404


async def test_its_own_page_drives_it(by_hand: Hand) -> None:
    headers = {"Origin": by_hand.url.rstrip("/")}
    async with by_hand.session.post(f"{by_hand.url}_emulator/reset", headers=headers) as got:
        assert got.status == 200


@pytest.mark.parametrize("allowed", [ELSEWHERE, "*"])
async def test_an_origin_that_is_let_in_reads_and_writes_but_controls_nothing(
    allowed: str,
) -> None:
    settings = EmulatorSettings(port=0, cors=(allowed,))
    async with running(settings) as url, hand(url) as by_hand:
        asked = {
            "Origin": ELSEWHERE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,x-ms-date",
        }
        async with by_hand.session.options(f"{url}dbs", headers=asked) as got:
            assert got.status == 204
            assert got.headers["Access-Control-Allow-Origin"] == ELSEWHERE
            assert got.headers["Access-Control-Allow-Headers"] == "authorization,x-ms-date"
            assert "PATCH" in got.headers["Access-Control-Allow-Methods"]
        done = await by_hand.send("GET", "/dbs", headers={"Origin": ELSEWHERE})
        assert (done.status, done.headers["Access-Control-Allow-Origin"]) == (200, ELSEWHERE)
        assert done.headers["Access-Control-Expose-Headers"] == "*"
        for verb, path in (("OPTIONS", "_emulator/reset"), ("POST", "_emulator/reset")):
            async with by_hand.session.request(verb, url + path, headers=asked) as got:
                assert got.status == 403
        plain = await by_hand.send("GET", "/dbs")
        assert "Access-Control-Allow-Origin" not in plain.headers


async def test_another_machine_controls_it_with_the_key_only() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            pytest.skip("this machine has no other address")
        here = asked.getsockname()[0]
    settings = EmulatorSettings(host="0.0.0.0", port=0)
    async with running(settings) as url, aiohttp.ClientSession() as session:
        far = url.replace("0.0.0.0", here)
        async with session.post(f"{far}_emulator/reset") as got:
            assert (got.status, "master key" in await got.text()) == (403, True)
        wrong = signed("GET", "/", settings.key)
        async with session.post(f"{far}_emulator/reset", headers=wrong) as got:
            assert got.status == 401
        account = Account(url=far)
        await asyncio.to_thread(account.reset)
        with pytest.raises(ValueError, match="key"):
            await asyncio.to_thread(Account(url=far, key="b3RoZXI=").reset)


async def test_each_request_is_a_line_of_the_log_when_that_is_asked_for(tmp_path: Path) -> None:
    async with process(tmp_path, "--log-requests") as (running_, url):
        async with hand(url) as by_hand:
            await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
        running_.terminate()
        assert running_.stdout is not None
        lines = [json.loads(x) for x in (await running_.stdout.read()).splitlines()]
    assert [(x["verb"], x["path"], x["status"]) for x in lines] == [
        ("POST", "/dbs", 201),
        ("POST", "/dbs/d/colls", 201),
        ("POST", "/dbs/d/colls/c/docs", 201),
    ]
    assert all(x["charge"] >= 1 and x["ms"] >= 0 for x in lines)
