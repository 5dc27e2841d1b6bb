"""A real browser on a page of ours; what it complains of fails the test."""

import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Literal

import pytest
from PIL import Image
from playwright.async_api import Page, async_playwright

from tests.support.processes import beside, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "docs/images"
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"
)
_LISTENS = re.compile(r"DevTools listening on (ws://\S+)")


@contextmanager
def running_chromium(profile: Path) -> Iterator[str]:
    """Run one browser for many tests, with a context for each; yield where it is reached."""
    assert CHROMIUM is not None, "tests without a browser are skipped"
    said = profile / "said"
    program = (
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update"),
        *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
    )
    with beside(*program, cwd=profile, said=said) as process:
        until(lambda: _LISTENS.search(said.read_text(errors="replace")), process, said)
        found = _LISTENS.search(said.read_text(errors="replace"))
        assert found is not None
        yield found[1]


@asynccontextmanager
async def browsing(
    chromium: str,
    url: str,
    *,
    width: int = 1200,
    height: int = 800,
    scheme: Literal["light", "dark"] = "light",
    allowed: str = "\0",
) -> AsyncIterator[Page]:
    """Open a page; at the end, no error may have been logged but those that say ``allowed``."""
    complaints: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium)
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        page = await context.new_page()
        page.set_default_timeout(15_000)
        page.on(
            "console",
            lambda x: complaints.append(x.text) if x.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda x: complaints.append(str(x)))
        page.on("dialog", lambda x: complaints.append(f"a dialog: {x.message}"))
        await page.goto(url)
        yield page
        await context.close()
    assert [x for x in complaints if allowed not in x] == []


async def picture(page: Page, name: str) -> None:
    """Take a picture for the documentation, where one is asked for."""
    if os.environ.get("TEST_PICTURES"):
        await page.evaluate("scrollTo(0, 0)")
        whole = Image.open(BytesIO(await page.screenshot()))
        whole.quantize(64).save(PICTURES / f"{name}.png", optimize=True)
