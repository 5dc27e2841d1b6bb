"""What can be done from the page, by whom, and what it refuses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from changefeed.cli.existing_leases import source_of
from changefeed.cli.monitoring import monitor_application, monitored
from changefeed.feeds.feed import Change, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.peers import Peers
from changefeed.fleet.watch import StatusWatch
from changefeed.host.page.access import Access
from changefeed.host.page.actions import ActionContext, ActionHandler
from changefeed.host.settings import Settings, WebSettings, load_settings
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import Origin, open_dead_letters
from changefeed.runtime.errors import UserError
from tests.support import make
from tests.support.servers import free_port

TOKEN = "sixteen characters"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ANNA = HostName("anna")

Client = TestClient[web.Request, web.Application]


async def fail(changes: Sequence[Change]) -> None:
    raise ValueError(f"still no {changes[0].key}")


async def leased(feed: MemoryFeed, leases: MemoryLeases) -> None:
    """Make a lease of each range: anna has the first."""
    for n, found in enumerate(await feed.ranges()):
        lease = await leases.create(make.lease(found, at="0"))
        if n == 0:
            await leases.acquire(lease.taken_by(ANNA, Incarnation("1")))


@asynccontextmanager
async def desk(
    tmp_path: Path,
    *,
    secret: str | None = TOKEN,
    observer: Any = fail,
    dead_letters: str = "sqlite:{}/dead.db",
) -> AsyncIterator[tuple[Client, MemoryLeases]]:
    feed, leases = MemoryFeed(2), MemoryLeases()
    for n in range(9):
        feed.append(f"key-{n}")
    await leased(feed, leases)
    address = dead_letters.format(tmp_path)
    tools = ActionContext(
        listing_every=5.0,
        settings=load_settings(None, {"observer": {"name": "bills", "dead_letters": address}}),
        container=leases,
        feed=feed,
        make_observer=lambda: adapt(observer, {}),
    )
    app = web.Application()
    app.add_routes(ActionHandler(lambda: tools, Access(lambda: secret)).routes)
    async with TestClient(TestServer(app)) as client:
        yield client, leases


async def asked(client: Client, /, **wanted: Any) -> tuple[int, Any]:
    answer = await client.post("/page/actions", json={"by": "Rosa", **wanted}, headers=BEARER)
    return answer.status, await answer.json()


async def paused(leases: MemoryLeases, name: str) -> None:
    lease = await leases.read(RangeId(name))
    assert lease is not None
    await leases.replace(lease.paused_because("disk"))


async def position(leases: MemoryLeases, name: str) -> str | None:
    lease = await leases.read(RangeId(name))
    assert lease is not None
    return lease.position


async def test_a_reset_says_what_it_would_do_and_does_it_when_it_is_confirmed(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as (client, leases):
        reset = {"action": "reset", "ranges": ["r1"], "to": "now"}
        status, said = await asked(client, **reset)
        assert (status, said["question"]) == (200, "Move 1 range?")
        assert "never delivered" in said["says"][0]
        assert await position(leases, "r1") == "0"
        status, said = await asked(client, **reset, confirm=True)
        moved = await position(leases, "r1")
        assert moved != "0"
        assert said == {"says": [f"r1: moved to {moved}"], "failed": 0}


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        ({"action": "pause", "ranges": ["r9"]}, "there is no lease of a range 'r9'"),
        ({"action": "pause", "ranges": []}, "name the ranges"),
        ({"action": "delete", "ranges": ["r0"]}, "this is not an action"),
        ({"action": "pause", "ranges": ["r0"], "by": ""}, "this is not an action"),
        ({"action": "pause", "ranges": ["r0"], "force": True}, "this is not an action"),
        ({"action": "release", "ranges": ["r0", "r1"]}, "one range is released at a time"),
        ({"action": "reset", "ranges": ["r1"], "to": "2026-01-31"}, "has no zone"),
        ({"action": "reset", "ranges": ["r1"], "to": "yesterday"}, "not a position"),
        ({"action": "replay", "letters": ["unknown"]}, "there are no dead letters at"),
    ],
)
async def test_a_mistake_is_answered_with_what_is_wrong(
    tmp_path: Path, wanted: dict[str, Any], error: str
) -> None:
    async with desk(tmp_path) as (client, leases):
        status, said = await asked(client, **wanted, confirm=True)
        assert (status, error in said["error"]) == (400, True), said
        assert not any(x.paused for x in await leases.list())


async def test_nothing_is_done_without_the_token_or_for_a_form_of_another_site(
    tmp_path: Path,
) -> None:
    body = b'{"action": "pause", "by": "x", "ranges": ["r0"], "confirm": true}'
    plain = {"Content-Type": "text/plain"}
    json_ = {"Content-Type": "application/json"}
    async with desk(tmp_path) as (client, leases):
        for headers, status in (
            (json_, 401),
            ({**json_, "Authorization": TOKEN}, 401),
            ({**json_, "Authorization": "Bearer wrong"}, 401),
            ({**plain, **BEARER}, 415),
        ):
            answer = await client.post("/page/actions", data=body, headers=headers)
            assert answer.status == status, headers
        assert not any(x.paused for x in await leases.list())
    async with desk(tmp_path, secret=None) as (client, leases):
        answer = await client.post("/page/actions", data=body, headers={**json_, **BEARER})
        assert answer.status == 403
        assert not any(x.paused for x in await leases.list())


OWN = Origin(feed="orders", observer="bills", fleet="sqlite:/a.db")
FIRST, SECOND = "18aa84e0:r0:0", "18aa84e0:r0:1"
"""The ids of letters of this origin."""


async def put_letters(tmp_path: Path, *origins: Origin) -> None:
    """Put a letter for each of these origins, or two of one key of the observer's own."""
    async with open_dead_letters(f"sqlite:{tmp_path}/dead.db") as kept:
        for n, origin in enumerate(origins or [OWN] * 2):
            change = make.change(n, range_id="r0", key="key", body=b'{"n": 1}')
            letter = make.letter(change, **asdict(origin))
            await kept.put(msgspec.structs.replace(letter, failed_us=n))


async def test_dead_letters_take_the_token_or_without_one_this_machine(tmp_path: Path) -> None:
    await put_letters(tmp_path)
    async with desk(tmp_path) as (client, _):
        assert (await client.get("/page/dead-letters")).status == 401
        answer = await client.get("/page/dead-letters", headers=BEARER)
        found = await answer.json()
        assert (found["count"], [x["id"] for x in found["letters"]]) == (2, [SECOND, FIRST])
        assert "body" not in found["letters"][0]
        answer = await client.get(f"/page/dead-letters?id={SECOND}", headers=BEARER)
        assert await answer.json() == {"body": '{\n  "n": 1\n}', "trace": "line 1\nline 2"}
    async with desk(tmp_path, secret=None) as (client, _):
        assert (await client.get("/page/dead-letters")).status == 200
        for headers in (
            {"Host": "evil.example"},  # a page of that site, which has its name lead here
            {"X-Forwarded-For": "203.0.113.7"},
            {"Forwarded": "for=203.0.113.7"},
        ):
            answer = await client.get("/page/dead-letters", headers=headers)
            assert answer.status == 403, headers


async def test_dead_letters_that_are_away_can_be_asked_for_later(tmp_path: Path) -> None:
    away = f"postgresql://someone@127.0.0.1:{free_port()}/letters"
    async with desk(tmp_path, dead_letters=away) as (client, _):
        answer = await client.get("/page/dead-letters", headers=BEARER)
        assert (answer.status, "no answer" in (await answer.json())["error"]) == (503, True)
        status, said = await asked(client, action="discard", letters=[SECOND])
        assert (status, "no answer" in said["error"]) == (503, True)


OTHERS = Origin(feed="orders", observer="mail:Mail", fleet="sqlite:/b.db")
LEFT = (
    "1 letter of observer mail:Mail, left: for that one, or for any other with changefeed "
    "dead-letters replay --all --of=mail:Mail"
)


async def test_a_letter_of_another_observer_is_refused_for_replay_and_may_be_discarded(
    tmp_path: Path,
) -> None:
    handled = list[str]()

    async def handle(changes: Sequence[Change]) -> None:
        handled.extend(x.key for x in changes)

    await put_letters(tmp_path, OWN, OTHERS)
    async with desk(tmp_path, observer=handle) as (client, _):
        answer = await client.get("/page/dead-letters", headers=BEARER)
        found = await answer.json()
        others, own = found["letters"]
        assert (others["observer"], others["fleet"]) == ("mail:Mail", "sqlite:/b.db")
        assert found["own"] == [own["id"]]
        alone = {"action": "replay", "letters": [others["id"]]}
        for confirm in (False, True):
            assert await asked(client, **alone, confirm=confirm) == (400, {"error": LEFT})
        both = {"action": "replay", "letters": [own["id"], others["id"]]}
        _, said = await asked(client, **both)
        assert (said["question"], said["says"][1]) == ("Replay 1 letter?", LEFT)
        assert await asked(client, **both, confirm=True) == (
            200,
            {"says": [f"{own['id']}: handled", LEFT], "failed": 1},
        )
        assert handled == ["key"]
        discard = {"action": "discard", "letters": [others["id"]], "confirm": True}
        assert await asked(client, **discard) == (
            200,
            {"says": [f"{others['id']}: discarded"], "failed": 0},
        )


async def test_one_action_is_carried_out_at_a_time(tmp_path: Path) -> None:
    async with desk(tmp_path) as (client, leases):
        reached, go = asyncio.Event(), asyncio.Event()
        real = leases.list

        async def slowly() -> list[Lease]:
            reached.set()
            await go.wait()
            return list(await real())

        leases.list = slowly  # type: ignore[method-assign]
        pause = {"action": "pause", "ranges": ["r0"]}
        first = asyncio.create_task(asked(client, **pause))
        await reached.wait()
        assert (await asked(client, **pause))[0] == 409
        go.set()
        assert (await first)[0] == 200


def test_a_token_in_a_file_is_refused_if_it_is_short(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short")
    with pytest.raises(UserError, match=r"too short.*16 characters"):
        _ = WebSettings.model_validate({"token_file": file}).secret
    file.write_text(TOKEN)
    assert WebSettings.model_validate({"token_file": file}).secret == TOKEN
    with pytest.raises(UserError, match="16"):
        load_settings(None, {"web": {"token": "short"}})


async def test_a_monitor_shows_a_fleet_whose_hosts_do_not_answer_and_only_looks() -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    await leased(feed, leases)
    await leases.put_member(make.member("anna", "1"))
    feed.append("key-1")
    settings = load_settings(None, {"web": {"token": TOKEN}})
    async with Peers.opened() as peers:
        watch = StatusWatch(source_of(settings, leases, feed, peers=peers).look)
        fleet = monitored("", {"": settings}, watch, leases, feed=feed, peers=peers)
        app = monitor_application({"": fleet}, lag_per_host=10)
        async with TestClient(TestServer(app)) as client:
            view = (await (await client.get("/page/state")).json())["view"]
            assert (view["me"], view["acts"]) == ("", False)
            assert [x["name"] for x in view["hosts"]] == ["anna"]
            rows = {x["range"]: x for x in view["ranges"]}
            assert (rows["r0"]["owner"], rows["r1"]["state"]) == ("anna", "unowned")
            assert sum(x["lag"] for x in rows.values()) == 1
            answer = await client.post(
                "/page/actions",
                json={"action": "pause", "by": "x", "ranges": ["r0"]},
                headers=BEARER,
            )
            assert answer.status == 403
            assert (await client.get("/livez")).status == 200
            assert (await client.get("/")).content_type == "text/html"


async def test_a_member_is_believed_about_itself_only_and_followed_nowhere() -> None:
    async def leases(request: web.Request) -> web.StreamResponse:
        if request.match_info["who"] == "ben":
            return web.json_response({"host": "anna", "ranges": [], "version": "9"})
        if request.match_info["who"] == "moved":
            raise web.HTTPFound("/anna/leases")
        if request.match_info["who"] == "odd":
            return web.Response(body=b"[" * 100_000)
        return web.json_response({"host": "anna", "version": "9"})

    app = web.Application()
    app.add_routes([web.get("/{who}/leases", leases)])
    async with TestServer(app) as server, Peers.opened() as peers:
        url = str(server.make_url("/")).rstrip("/")
        names = ("anna", "ben", "moved", "odd")
        hosts = {x: f"{url}/{x}" for x in names}
        found = await peers.ask({**hosts, "bad": "file:///etc/passwd"})
        assert {x: y.version for x, y in found.items()} == {"anna": "9"}


def test_settings_have_no_token_unless_one_is_given() -> None:
    assert Settings().web.secret is None
    assert "sixteen" not in repr(load_settings(None, {"web": {"token": TOKEN}}))
