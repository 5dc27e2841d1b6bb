"""The page in a real browser: it shows, follows, acts, and takes no text for markup."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs
from playwright.async_api import Page, expect

from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.status import Totals, TrendPoint
from changefeed.host.endpoints import HostEndpoints, application, application_of
from changefeed.host.events import HostEvents
from changefeed.host.host import Host
from changefeed.host.page.page import Page as PageOf
from changefeed.host.page.state import PageState
from changefeed.host.page.stream import EventStream
from changefeed.host.settings import Settings, WebSettings, load_settings
from changefeed.host.web import listening_socket, url_of
from changefeed.leases.lease import HostName
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import DeadLetter, LetterError, open_dead_letters
from changefeed.observers.range_observers import ObserverSetup
from changefeed.runtime.web_server import WebLimits, serving
from changefeed.testing.fleet import FleetLog, LoggingObserver
from tests.support import make
from tests.support.browser import browsing, needs_browser, picture
from tests.support.looking import until
from tests.support.processes import PATIENCE

pytestmark = needs_browser

_log = logging.getLogger("page")
TOKEN = "a token that is long enough"
HOSTILE = "<img src=x onerror=window.owned=1><script>alert(1)</script>"
QUICK = {
    "expiration": 3.0,
}


def settings_of(name: str, **sections: Any) -> Settings:
    given = {"host": {"name": name}, "leases": QUICK, "feed": {"poll_interval": 0.05}}
    return load_settings(None, {**given, **sections})


async def nothing(changes: Sequence[Change]) -> None:
    """Be done with anything."""


@asynccontextmanager
async def a_host(
    settings: Settings, feed: MemoryFeed, leases: MemoryLeases
) -> AsyncIterator[tuple[Host, str]]:
    observer, events = LoggingObserver(FleetLog()), HostEvents(HostName(settings.host.name))
    hosts, make = dict[str, Host](), adapt(nothing, {})
    answers = HostEndpoints(settings.host.name, None, hosts, make_observer=make)
    with listening_socket(WebSettings()) as listening:
        async with serving(application(answers), WebLimits(), listening):
            host = hosts[""] = Host(
                settings,
                feed=feed,
                container=leases,
                observers=ObserverSetup(lambda: observer, settings.observer, events, Random(1)),
                address=url_of(listening),
            )
            running = asyncio.create_task(host.run())
            try:
                yield host, url_of(listening)
            finally:
                host.stop()
                await running


@asynccontextmanager
async def two_processors() -> AsyncIterator[str]:
    """Serve the hosts of two processors, with 1 and with 3 ranges; yield the address."""
    hosts, names = dict[str, Host](), ("orders", "to-search")
    answers = {x: HostEndpoints("anna", None, hosts, x) for x in names}
    app = application_of(HostEndpoints("anna", None, hosts), answers)
    async with AsyncExitStack() as stack:
        listening = stack.enter_context(listening_socket(WebSettings()))
        await stack.enter_async_context(serving(app, WebLimits(), listening))
        for name, ranges in zip(names, (1, 3), strict=True):
            running = a_host(settings_of("anna"), MemoryFeed(ranges), MemoryLeases())
            hosts[name], _ = await stack.enter_async_context(running)
        yield url_of(listening)


def row(page: Page, name: str) -> Any:
    return page.locator("#range-table tbody tr", has=page.get_by_role("button", name=name))


async def test_each_processor_of_a_process_has_a_page_that_leads_to_the_others(
    chromium: str,
) -> None:
    async with two_processors() as url, browsing(chromium, url) as page:
        await expect(page.locator("#title")).to_have_text("Changefeed Host anna orders")
        await expect(page.locator("#range-table tbody tr")).to_have_count(1)
        here = page.locator("#processors a[aria-current=page]")
        await expect(here).to_have_text("orders")
        await page.get_by_role("link", name="to-search").click()
        await expect(page.locator("#title")).to_have_text("Changefeed Host anna to-search")
        await expect(page.locator("#range-table tbody tr")).to_have_count(3)
        await expect(here).to_have_text("to-search")


async def test_what_happens_to_a_fleet_shows_without_a_reload(chromium: str) -> None:
    feed, leases = MemoryFeed(4), MemoryLeases()
    async with a_host(settings_of("anna"), feed, leases) as (anna, url):
        await until(lambda: len(anna.leases) == 4, within=PATIENCE)
        async with browsing(chromium, url) as page:
            await expect(page.locator("#connection")).to_have_text("live")
            await expect(page.locator("#host-table tbody tr")).to_have_count(1)
            await expect(page.locator("#range-table tbody tr")).to_have_count(4)
            appended = feed.append("key", b"{}")
            changed = row(page, appended.range_id).locator("td.position")
            await expect(changed).to_have_text("1")
            async with a_host(settings_of("ben"), feed, leases):
                moves = page.locator("#move-list")
                await expect(moves).to_contain_text("from anna to ben")
                await expect(page.locator("#host-table tbody tr")).to_have_count(2)
            feed.split_range(appended.range_id)
            await expect(row(page, "r4")).to_contain_text("anna")
            await page.locator("#lineage summary").click()
            boxes = page.locator("#lineage-picture g.node")
            await expect(boxes).to_have_count(6)
            await expect(page.locator("#lineage-picture path")).to_have_count(2)
            await row(page, "r4").get_by_role("button").click()
            facts = page.locator("#details")
            await expect(facts).to_contain_text("Came from")
            await facts.get_by_role("button", name=appended.range_id).click()
            await expect(facts).to_contain_text("Continues in")


async def test_a_range_is_paused_and_resumed_with_the_token_and_not_without(
    chromium: str, caplog: pytest.LogCaptureFixture
) -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    settings = settings_of("anna", web={"token": TOKEN})
    async with a_host(settings, feed, leases) as (anna, url):
        await until(lambda: len(anna.leases) == 2, within=PATIENCE)
        async with browsing(chromium, url, allowed="401") as page:

            async def ask(button: str, token: str | None) -> Any:
                await row(page, "r0").get_by_role("button").click()
                await page.locator("#details").get_by_role("button", name=button).click()
                dialog = page.locator("#action")
                await dialog.get_by_label("Your name").fill("Rosa")
                if token is not None:
                    await dialog.get_by_label("Token").fill(token)
                await dialog.get_by_role("button", name="What would happen?").click()
                return dialog

            dialog = await ask("Pause", "a wrong token, of a good length")
            await expect(dialog).to_contain_text("this is not the token")
            await dialog.get_by_role("button", name="Close").click()
            assert not anna.events.paused

            dialog = await ask("Pause", TOKEN)
            await expect(dialog).to_contain_text("Pause 1 range?")
            await expect(dialog).to_contain_text("Their owners finish their current batch")
            assert not anna.events.paused, "it has only been asked what it means"
            await dialog.get_by_role("button", name="Yes").click()
            await expect(dialog).to_contain_text("r0: paused; anna finishes what it has")
            await dialog.get_by_role("button", name="Close").click()
            await expect(row(page, "r0")).to_contain_text("paused by hand")
            assert anna.events.paused == {"r0": "paused by hand"}

            dialog = await ask("Resume", None)  # it has the token by now
            await dialog.get_by_role("button", name="Yes").click()
            await expect(dialog).to_contain_text("r0: resumed")
            await dialog.get_by_role("button", name="Close").click()
            await expect(row(page, "r0")).to_contain_text("anna")
    refused, *acted = [y for x in caplog.records if "page.action" in (y := x.getMessage())]
    assert "outcome=refused" in refused
    assert ["action=pause" in acted[0], "action=resume" in acted[1], len(acted)] == [
        True,
        True,
        2,
    ]
    assert all("by=Rosa" in x and "remote=127.0.0.1" in x for x in acted)


async def test_without_a_token_set_there_is_nothing_to_act_with(chromium: str) -> None:
    feed, leases = MemoryFeed(2), MemoryLeases()
    async with a_host(settings_of("anna"), feed, leases) as (anna, url):
        await until(lambda: len(anna.leases) == 2, within=PATIENCE)
        async with browsing(chromium, url, allowed="403") as page:
            await row(page, "r0").get_by_role("button").click()
            details = page.locator("#details")
            await expect(details).to_contain_text("Epoch")
            await expect(details.get_by_role("button", name="Pause")).to_have_count(0)
            await expect(page.locator("input[type=checkbox]")).to_have_count(0)
            status = await page.evaluate(
                """async () => (await fetch("page/actions", {method: "POST", body:
                '{"action": "pause", "by": "x", "ranges": ["r0"], "confirm": true}',
                headers: {"Content-Type": "application/json"}})).status"""
            )
    assert (status, anna.events.paused) == (403, {})


def hostile_letter() -> DeadLetter:
    change = Change(
        range_id=RangeId("r0"),
        sequence=1,
        key=HOSTILE,
        id=HOSTILE,
        operation=Operation.INSERT,
        body=json.dumps({"name": HOSTILE}).encode(),
        committed_us=0,
    )
    failure = LetterError(kind="ValueError", text=HOSTILE, trace=HOSTILE)
    return DeadLetter(
        feed="f",
        observer="bills",
        fleet="",
        change=change,
        failure=failure,
        attempts=3,
        host=HOSTILE,
        epoch=1,
        failed_us=0,
    )


async def test_names_reasons_and_bodies_stay_text_and_a_letter_is_replayed(
    chromium: str, tmp_path: Path
) -> None:
    letters = f"sqlite:{tmp_path}/dead.db"
    async with open_dead_letters(letters) as kept:
        await kept.put(hostile_letter())
        await kept.put(structs.replace(hostile_letter(), observer="mail:Mail"))
    feed, leases = MemoryFeed([HOSTILE, "r1"]), MemoryLeases()
    observer = {"name": "bills", "dead_letters": letters}
    settings = settings_of(HOSTILE, observer=observer, web={"token": TOKEN})
    async with a_host(settings, feed, leases) as (host, url):
        await until(lambda: len(host.leases) == 2, within=PATIENCE)
        lease = await leases.read(RangeId("r1"))
        assert lease is not None
        await leases.replace(lease.paused_because(HOSTILE))
        async with browsing(chromium, url, allowed="401") as page:
            await expect(page.locator("#troubles")).to_contain_text(HOSTILE)
            await expect(page.locator("#title")).to_contain_text(HOSTILE)
            await page.locator("#lineage summary").click()
            await expect(page.locator("#lineage-picture")).to_contain_text("<img src=x")
            await page.locator("#letters summary").first.click()
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_role("button", name="Show").click()
            await expect(page.locator("#letters")).to_contain_text(" in mail:Mail, 3 attempts")
            await expect(page.get_by_role("button", name="Discard …")).to_have_count(2)
            await expect(page.locator("#letters")).to_contain_text(
                "Replay the 1 of this observer"
            )
            await page.get_by_text("Body and traceback").first.click()
            await expect(page.locator("#letters pre").first).to_contain_text("<img src=x")
            await page.get_by_role("button", name="Replay …", exact=True).click()
            dialog = page.locator("#action")
            await dialog.get_by_label("Your name").fill(HOSTILE)
            await dialog.get_by_role("button", name="What would happen?").click()
            await expect(dialog).to_contain_text("recognize an older change")
            await dialog.get_by_role("button", name="Yes").click()
            await expect(dialog).to_contain_text("r0:1: handled")
            await dialog.get_by_role("button", name="Close").click()
            await expect(page.locator("#letters")).to_contain_text("1 dead letter.")
            assert await page.evaluate("window.owned") is None
            assert await page.locator("img, body script, #letters script").count() == 0
    async with open_dead_letters(letters) as kept:
        assert [x.observer for x in await kept.list()] == ["mail:Mail"]


def thousand(look: int = 0) -> PageState:
    """A fleet with all there can be, after so many looks."""
    odd: dict[int, Any] = {
        23: {"state": "paused", "note": "the warehouse is being counted"},
        417: {"state": "failing", "note": "ConnectionError: orders is away", "since": 900.0},
    }
    ranges = [
        make.range_seen(
            f"e2.p{n % 12:02}.v{n // 12 * 3:03x}-{n // 12 * 3 + 2:03x}",
            f"host-{n % 8 + 1}",
            parents=(f"e1.p{n % 12:02}.v000-0ff",),
            epoch=4,
            owned_since=500.0 + n,
            position=f"27296216/{n * 1500}",
            lag=n * 7 % 900 + look,
            lag_seconds=n % 50 / 10,
            rate=float(n % 40),
            checkpoint_at=995.0,
            progress_at=1000.0,
            **odd.get(n, {}),
        )
        for n in range(1000)
    ]
    total = Totals(ranges=125, lag=56_000, lag_at_least=56_000, lag_seconds=4.9, rate=2437.5)
    hosts = [
        make.host_seen(f"host-{n + 1}", total=total, started_at=100.0, version="0.1.0",
                       loop_lag=0.002, stamp_age=1.0)
        for n in range(8)
    ]  # fmt: skip
    hour = [
        TrendPoint(
            at=1000.0 - 10 * n, rate=19_000.0 + 900 * (n % 17), lag=440_000 + 3000 * (n % 31)
        )
        for n in reversed(range(300))
    ]
    status = make.fleet_seen(
        sorted(ranges, key=lambda x: x.range),
        at=1000.0 + look,
        feed="cosmos://shop.documents.azure.com/shop/orders",
        leases="postgresql://leases/shop",
        hosts=hosts,
        hour=hour,
    )
    return PageState(status=status)


@asynccontextmanager
async def a_thousand() -> AsyncIterator[tuple[EventStream, str]]:
    looks = iter(range(10_000))

    async def look() -> PageState:
        return thousand(next(looks))

    stream = EventStream(look, every=0.5)
    app = web.Application()
    app.add_routes(PageOf(stream).routes)
    with listening_socket(WebSettings()) as listening:
        async with stream.looking(), serving(app, WebLimits(), listening):
            yield stream, url_of(listening)


async def test_a_thousand_ranges_are_light_and_soon_there_sorted_and_filtered(
    chromium: str,
) -> None:
    async with a_thousand() as (_, url), browsing(chromium, "about:blank") as page:
        weight: list[int] = []

        async def weigh(answer: Any) -> None:
            weight.append(int(answer.headers.get("content-length", 0)))

        page.on("response", weigh)
        await page.goto(url)
        rows = page.locator("#range-table tbody tr")
        await expect(rows).to_have_count(200)
        paint = await page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        )
        filled = await page.evaluate("performance.now()")
        _log.info("%s bytes, first paint %.0f ms, rows %.0f ms", sum(weight), paint, filled)
        assert sum(weight) < 80_000
        assert paint < 5000
        await expect(page.locator("#totals")).to_contain_text("1,000")
        await page.get_by_role("button", name="Lag", exact=True).click()
        heading = page.locator("#ranges").get_by_role("columnheader", name="Lag", exact=True)
        await expect(heading).to_have_attribute("aria-sort", "descending")
        lags = [int(x) for x in await rows.locator("td[data-label=Lag]").all_inner_texts()]
        assert lags == sorted(lags, reverse=True)
        await page.get_by_label("Filter").fill("host-2 p01*v00")
        await expect(page.locator("#range-count")).to_contain_text("ranges of 1,000")
        shown = await rows.count()
        assert 0 < shown < 20
        await page.get_by_label("Filter").fill("")
        await page.locator("#state").select_option("failing")
        await expect(rows).to_have_count(1)
        await expect(rows).to_contain_text("orders is away")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_used_by_keyboard_and_on_a_phone(chromium: str, scheme: Any) -> None:
    async with a_thousand() as (_, url):
        async with browsing(chromium, url, scheme=scheme) as page:
            await expect(page.locator("#range-table tbody tr")).to_have_count(200)
            await picture(page, f"page-{scheme}")
            await page.get_by_label("Filter").focus()
            await page.keyboard.type("p05")
            name = page.locator("#range-table tbody button").first
            await name.focus()
            wanted = await name.inner_text()
            await page.keyboard.press("Enter")
            await expect(page.get_by_role("dialog")).to_contain_text(wanted)
            await page.keyboard.press("Escape")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            assert await name.evaluate("x => x === document.activeElement")
            unnamed = await page.evaluate(
                """[...document.querySelectorAll("input, select, button")].filter(x =>
                !x.labels?.length && !x.ariaLabel && !x.textContent.trim()).length"""
            )
            assert unnamed == 0
        async with browsing(chromium, url, width=390, height=800, scheme=scheme) as page:
            await expect(page.locator("#range-table tbody tr")).to_have_count(20)
            width = await page.evaluate("document.scrollingElement.scrollWidth")
            assert width <= 390
            if scheme == "dark":
                await picture(page, "page-phone")
