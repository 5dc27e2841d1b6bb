"""The explorer in a real browser: it does what it shows, and takes no text for markup."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Page, expect

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand
from tests.support.browser import browsing, needs_browser, running_chromium

pytestmark = [needs_browser, pytest.mark.nightly]
HOSTILE = "<img src=x onerror=window.owned=1>"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address


async def put(by_hand: Hand, name: str, **more: Any) -> None:
    answer = await by_hand.send("POST", DOCS, {"id": name, "pk": name, **more}, key=name)
    assert answer.status == 201


async def opened(page: Page, tab: str) -> None:
    await page.locator("nav").get_by_role("button", name="c", exact=True).click()
    await page.locator("#tabs").get_by_role("button", name=tab).click()


def rows(page: Page, table: str) -> Any:
    return page.locator(f"#{table} tr")


async def test_items_are_looked_at_edited_and_deleted(chromium: str, by_hand: Hand) -> None:
    await put(by_hand, "first", text=HOSTILE)
    await put(by_hand, HOSTILE.replace("/", ""))
    async with browsing(chromium, f"{by_hand.url}_explorer/", allowed="409") as page:
        await opened(page, "Items")
        await expect(rows(page, "item-list")).to_have_count(2)
        await page.get_by_role("button", name="first").click()
        editor = page.get_by_label("Item")
        text = await editor.input_value()
        await editor.fill(text.replace(HOSTILE, "edited"))
        await page.get_by_role("button", name="Save").click()
        await expect(editor).not_to_have_value(text)
        stored = await by_hand.send("GET", f"{DOCS}/first", key="first")
        assert stored.body["text"] == "edited"
        await page.get_by_role("button", name="New item").click()
        await editor.fill('{"id": "first", "pk": "first"}')
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("alert")).to_contain_text("409: There is an item 'first'")
        await page.get_by_role("button", name="first").click()
        await page.get_by_role("button", name="Delete").click()
        await expect(rows(page, "item-list")).to_have_count(1)
        assert await page.evaluate("window.owned") is None
    assert (await by_hand.send("GET", f"{DOCS}/first", key="first")).status == 404


async def test_a_query_tells_its_charge_or_its_plan(chromium: str, by_hand: Hand) -> None:
    for name in "abc":
        await put(by_hand, name)
    await by_hand.split()
    async with browsing(chromium, f"{by_hand.url}_explorer/", allowed="400") as page:
        await opened(page, "Query")
        sql, run = page.get_by_label("Query"), page.get_by_role("button", name="Run over all")
        await sql.fill("SELECT VALUE c.id FROM c WHERE c.id > 'a'")
        await run.click()
        await expect(page.locator("#query-said")).to_contain_text("2 results, ")
        await expect(page.locator("#query-said")).to_contain_text(" RU")
        await expect(page.locator("#results")).to_contain_text('"b"')
        await sql.fill("SELECT VALUE c.id FROM c ORDER BY c.id")
        await run.click()
        await expect(page.locator("#query-said")).to_contain_text("400/1004")
        await expect(page.locator("#results")).to_contain_text('"orderBy"')
        await sql.fill("SELECT")
        await run.click()
        await expect(page.get_by_role("alert")).to_contain_text("400")


async def test_ranges_split_and_merge_and_the_feed_goes_on(
    chromium: str, by_hand: Hand
) -> None:
    await put(by_hand, "before")
    async with browsing(chromium, f"{by_hand.url}_explorer/", allowed="410") as page:
        await opened(page, "Change feed")
        await page.get_by_label("Mode").select_option("all")
        await page.get_by_role("button", name="Follow").click()
        await expect(page.locator("#feed-said")).to_have_text("live")
        changes = page.locator("#changes")
        tabs = page.locator("#tabs")
        while await changes.locator("tr").count() == 0:  # until it has begun
            await by_hand.send("POST", DOCS, {"id": "n", "pk": "n"}, {
                "x-ms-documentdb-is-upsert": "True"}, key="n")  # fmt: skip
        await tabs.get_by_role("button", name="Ranges").click()
        drawn = page.locator("#ranges-drawn button")
        await drawn.click()
        await page.get_by_role("button", name="Split").click()
        await expect(drawn).to_have_count(2)
        for name in "abcdefgh":
            await put(by_hand, name)
        await by_hand.send("DELETE", f"{DOCS}/before", key="before")
        await tabs.get_by_role("button", name="Change feed").click()
        await expect(changes.get_by_text("create", exact=True)).to_have_count(9)
        await expect(changes.locator("tr", has_text="delete")).to_contain_text("before")
        assert len(await by_hand.control("GET", "")) == 1
        await tabs.get_by_role("button", name="Ranges").click()
        await drawn.first.click()
        await page.get_by_role("button", name="Merge with the next").click()
        await expect(drawn).to_have_count(1)
        await put(by_hand, "last")
        await tabs.get_by_role("button", name="Change feed").click()
        await expect(changes).to_contain_text('"last"')
        await expect(changes.get_by_text("create", exact=True)).to_have_count(10)


async def test_a_fault_and_a_limit_are_switched_on_and_off(
    chromium: str, by_hand: Hand
) -> None:
    async with browsing(chromium, f"{by_hand.url}_explorer/") as page:
        await opened(page, "Faults")
        await page.get_by_label("status").fill("449")
        await page.get_by_role("button", name="Switch on").click()
        await expect(rows(page, "fault-list")).to_have_count(1)
        answer = await by_hand.send("POST", DOCS, {"id": "1", "pk": "p"}, key="p")
        assert answer.status == 449
        await page.get_by_role("button", name="Switch all off").click()
        await expect(rows(page, "fault-list")).to_have_count(0)
        await page.get_by_label("Requests a second").fill("1")
        await page.get_by_role("button", name="Throttle", exact=True).click()
        await expect(page.locator("#throttle-said")).to_contain_text("requests_per_second")
        assert {(await by_hand.feed()).status for _ in range(3)} == {304, 429}
        await page.get_by_role("button", name="Stop throttling").click()
        await expect(page.locator("#throttle-said")).to_contain_text("no limit")
        assert (await by_hand.feed()).status == 304


async def test_another_key_is_asked_for(chromium: str) -> None:
    settings = EmulatorSettings(port=0, key="b3RoZXI=")
    async with (
        running(settings) as url,
        browsing(chromium, f"{url}_explorer/", allowed="401") as page,
    ):
        await expect(page.get_by_role("alert")).to_contain_text("401")
        await page.get_by_label("Master key").fill(settings.key)
        await page.get_by_label("Master key").press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("")


async def test_no_other_page_frames_it_and_no_other_script_runs(by_hand: Hand) -> None:
    async with by_hand.session.get(f"{by_hand.url}_explorer") as got:
        policy = got.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    async with by_hand.session.get(
        f"{by_hand.url}_explorer/", headers={"Host": "elsewhere.example"}
    ) as got:
        assert got.status == 403
