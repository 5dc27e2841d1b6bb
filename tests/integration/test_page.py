"""The page of a host over HTTP: what is served, under which rules, and to how many."""

import asyncio
import gzip
import json
from typing import Any

import aiohttp
import pytest

from changefeed.feeds.memory import MemoryFeed
from changefeed.host.endpoints import AsgiApp, HostEndpoints, asgi_endpoints
from changefeed.host.host import Host
from changefeed.host.page.files import INDEX, page_file
from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.web_server import WebLimits
from tests.support.looking import until
from tests.support.processes import PATIENCE
from tests.support.web_hosts import quick_host, running, served


async def fetched(url: str, **headers: str) -> tuple[aiohttp.ClientResponse, bytes]:
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(url, headers=headers) as answer,
    ):
        return answer, await answer.read()


async def state(url: str) -> Any:
    plain = {"Accept-Encoding": "identity"}
    return json.loads((await fetched(f"{url}/page/state", **plain))[1])


async def test_every_answer_allows_a_browser_no_other_source_and_no_inline_script() -> None:
    async with served(HostEndpoints("anna", None, {})) as url:
        for path in ("/", "/page/page.js", "/page/page.css", "/page/none", "/page/state"):
            answer, _ = await fetched(url + path)
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';"), path
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert page_file("../state.py") is None
    index = page_file(INDEX)
    assert index is not None
    assert b"<script>" not in index.body
    assert b"style=" not in index.body
    assert b"//" not in index.body.replace(b"://www.w3.org", b""), "nothing is from elsewhere"


async def test_a_file_is_sent_once_and_compressed() -> None:
    async with served(HostEndpoints("anna", None, {})) as url:
        plain, body = await fetched(f"{url}/page/page.js", **{"Accept-Encoding": "identity"})
        packed, small = await fetched(f"{url}/page/page.js", **{"Accept-Encoding": "gzip"})
        assert gzip.decompress(small) == body
        assert packed.headers["Content-Type"] == "text/javascript; charset=utf-8"
        tag = plain.headers["ETag"]
        again, nothing = await fetched(f"{url}/page/page.js", **{"If-None-Match": tag})
        assert (again.status, nothing) == (304, b"")


async def until_owned(host: Host, count: int) -> None:
    await until(lambda: len(host.leases) == count, within=PATIENCE)


async def test_a_host_shows_the_fleet_with_what_each_other_host_answers() -> None:
    feed, leases = MemoryFeed(4), MemoryLeases()
    async with (
        served(HostEndpoints("anna", None, one := {})) as url,
        served(HostEndpoints("ben", None, other := {})) as other_url,
    ):
        anna = one[""] = quick_host("anna", feed, leases, address=url)
        ben = other[""] = quick_host("ben", feed, leases, address=other_url)
        async with running(anna, ben):
            await until_owned(anna, 2)
            await until_owned(ben, 2)
            for n in range(20):
                feed.append(f"key-{n}", b"{}")
            await asyncio.sleep(1.0)  # it lists again
            view = (await state(url))["view"]
    assert (view["me"], view["acts"]) == ("anna", False)
    hosts = {x["name"]: x for x in view["hosts"]}
    assert [(x, y["state"], y["total"]["ranges"]) for x, y in sorted(hosts.items())] == [
        ("anna", "running", 2),
        ("ben", "running", 2),
    ]
    assert hosts["ben"]["version"] == hosts["anna"]["version"] is not None
    assert hosts["ben"]["started_at"] == pytest.approx(ben.events.activity.started_at)
    owned = {x["range"]: x for x in view["ranges"]}
    assert {x["owner"] for x in owned.values()} == {"anna", "ben"}
    assert all(x["owned_since"] is not None for x in owned.values()), "as its owner answers"
    assert sum(int(x["position"]) for x in owned.values()) == 20
    assert all(x["checkpoint_at"] is not None for x in owned.values() if x["position"] != "0")


async def test_events_come_as_they_happen() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    hosts = dict[str, Host]()
    async with (
        served(HostEndpoints("anna", None, hosts)) as url,
        aiohttp.ClientSession() as session,
    ):
        host = hosts[""] = quick_host("anna", feed, leases, address=url)
        async with running(host):
            await until_owned(host, 2)
            number = (await state(url))["number"]
            async with session.get(f"{url}/page/events?after={number}") as stream:
                assert stream.content_type == "text/event-stream"
                lease = await leases.read(next(iter(host.leases)))
                assert lease is not None
                await leases.replace(lease.paused_because("the disk is full"))
                async with asyncio.timeout(PATIENCE):
                    async for line in stream.content:
                        if b"the disk is full" in line:
                            break
                    else:
                        raise AssertionError("the stream ended")


async def test_a_probe_has_its_answer_while_many_watch() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    async with served(HostEndpoints("anna", None, hosts := {}), WebLimits(most=40)) as url:
        host = hosts[""] = quick_host("anna", feed, leases, address=url)
        async with running(host), aiohttp.ClientSession() as session:
            await until_owned(host, 2)
            streams = [await session.get(f"{url}/page/events") for _ in range(32)]
            assert {x.status for x in streams} == {200}
            assert (await session.get(f"{url}/page/events")).status == 503
            more = [await session.get(f"{url}/livez") for _ in range(20)]
            assert {x.status for x in more} == {200}
            for stream in streams:
                stream.close()


async def test_a_stream_outlives_the_time_of_other_answers_and_gives_way_to_them() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    async with served(
        HostEndpoints("anna", None, hosts := {}), WebLimits(most=4, answer=0.3)
    ) as url:
        host = hosts[""] = quick_host("anna", feed, leases, address=url)
        async with running(host):
            await until_owned(host, 2)
            port = int(url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /page/events HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(1)
            assert not reader.at_eof()
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
            assert (await fetched(f"{url}/livez"))[0].status == 200
            for _, other in held:
                other.transport.abort()
            writer.transport.abort()


async def asgi_get(app: AsgiApp, path: str) -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": f"/feed{path}", "root_path": "/feed"}
    await app({**scope, "headers": []}, receive, send)
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"]


async def test_an_asgi_program_serves_the_page_to_look_at() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    host = quick_host("anna", feed, leases)
    app = asgi_endpoints(host)
    async with running(host):
        await until_owned(host, 2)
        status, headers, body = await asgi_get(app, "/")
        assert (status, b"page/page.js" in body) == (200, True)
        assert headers[b"content-security-policy"].startswith(b"default-src 'none'")
        assert (await asgi_get(app, "/page/page.js"))[0] == 200
        assert (await asgi_get(app, "/page/none.js"))[0] == 404
        assert (await asgi_get(app, "/index.html"))[0] == 404
        status, headers, body = await asgi_get(app, "/page/state")
        view = json.loads(body)["view"]
        assert (status, view["me"], view["acts"]) == (200, "anna", False)
        assert len(view["ranges"]) == 2
        assert (await asgi_get(app, "/livez"))[0] == 200
