"""The page by axe-core's rules, light and dark, on a desk and on a phone; and short on a phone.

axe: npm install --prefix .venv/axe axe-core
"""

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from playwright.async_api import Page, expect

from changefeed.feeds.feed import RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.observers.dead_letters import open_dead_letters
from tests.acceptance.test_page_in_browser import (
    TOKEN,
    a_host,
    a_thousand,
    hostile_letter,
    row,
    settings_of,
)
from tests.support.browser import browsing, needs_browser
from tests.support.looking import until
from tests.support.processes import PATIENCE

AXE = Path(__file__).parents[2] / ".venv/axe/node_modules/axe-core/axe.min.js"
needs_axe = pytest.mark.skipif(
    not AXE.exists(), reason="axe is not there: npm install --prefix .venv/axe axe-core"
)
pytestmark = needs_browser

PHONE: dict[str, Any] = {"width": 390, "height": 800}
LOOKS = [
    pytest.param({"scheme": scheme, **size}, id=f"{scheme}-{name}")
    for scheme in ("light", "dark")
    for name, size in (("desk", {}), ("phone", PHONE))
]


async def violations(page: Page) -> list[str]:
    """Return what axe finds, all of its rules on, but those that are experimental."""
    await page.evaluate(AXE.read_text())
    found: dict[str, Any] = await page.evaluate("axe.run()")
    assert len(found["passes"]) > 10, "axe has looked"
    return [
        f"{x['id']}: {node['html'][:200]}" for x in found["violations"] for node in x["nodes"]
    ]


@needs_axe
@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_no_fault_in_a_large_fleet(chromium: str, look: dict[str, Any]) -> None:
    async with a_thousand() as (_, url), browsing(chromium, url, **look) as page:
        await expect(page.locator("#range-table tbody tr").first).to_be_visible()
        assert await violations(page) == []
        await page.locator("#lineage summary").click()
        await expect(page.locator("#lineage-picture svg")).to_have_count(1)
        assert await violations(page) == []
        await page.locator("#range-table tbody button").first.click()
        await expect(page.get_by_role("dialog")).to_be_visible()
        assert await violations(page) == []


@needs_axe
@pytest.mark.parametrize("look", LOOKS)
async def test_axe_finds_no_fault_where_people_act(
    chromium: str, look: dict[str, Any], tmp_path: Path
) -> None:
    letters = f"sqlite:{tmp_path}/dead.db"
    async with open_dead_letters(letters) as kept:
        await kept.put(hostile_letter())
        await kept.put(structs.replace(hostile_letter(), observer="mail:Mail"))
    feed, leases = MemoryFeed(["r0", "r1"]), MemoryLeases()
    observer = {"name": "bills", "dead_letters": letters}
    settings = settings_of("anna", observer=observer, web={"token": TOKEN})
    async with a_host(settings, feed, leases) as (host, url):
        await until(lambda: len(host.leases) == 2, within=PATIENCE)
        lease = await leases.read(RangeId("r1"))
        assert lease is not None
        await leases.replace(lease.paused_because("stock is taken"))
        async with browsing(chromium, url, allowed="401", **look) as page:
            await expect(page.locator("#troubles")).to_contain_text("stock is taken")
            await page.locator("#letters summary").first.click()
            await expect(page.get_by_label("Token")).to_be_visible()
            assert await violations(page) == []
            await page.get_by_label("Token").fill(TOKEN)
            await page.get_by_role("button", name="Show").click()
            await page.get_by_text("Body and traceback").first.click()
            await expect(page.locator("#letters pre").first).to_be_visible()
            await page.locator("#range-table input").first.check()
            assert await violations(page) == []
            await row(page, "r0").get_by_role("button").click()
            await page.locator("#details").get_by_role("button", name="Pause").click()
            dialog = page.locator("#action")
            await dialog.get_by_label("Your name").fill("Rosa")
            assert await violations(page) == []
            await dialog.get_by_role("button", name="What would happen?").click()
            await expect(dialog).to_contain_text("Pause 1 range?")
            assert await violations(page) == []


async def test_dead_letters_are_counted_for_all_who_see_the_page(
    chromium: str, tmp_path: Path
) -> None:
    letters = f"sqlite:{tmp_path}/dead.db"
    observer = {"name": "bills", "dead_letters": letters}
    settings = settings_of("anna", observer=observer, web={"token": TOKEN})
    feed, leases = MemoryFeed(1), MemoryLeases()
    async with a_host(settings, feed, leases) as (_, url), browsing(chromium, url) as page:
        tile = page.locator("#totals div", has_text="Dead letters")
        await expect(tile.locator("dd")).to_have_text("0")
        async with open_dead_letters(letters) as kept:
            await kept.put(hostile_letter())
            await kept.put(structs.replace(hostile_letter(), observer="mail:Mail"))
        await expect(tile.locator("dd")).to_have_text("2", timeout=PATIENCE * 1000)
        await expect(page.locator("#to-letters")).to_have_text("Dead letters (2)")
