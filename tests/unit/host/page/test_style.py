"""The colours of the page can be read, in the light and in the dark."""

import re

import pytest

from changefeed.host.page.files import page_file

ENOUGH = 4.5  # what WCAG 2 asks of text, at AA


def palettes() -> dict[str, dict[str, str]]:
    css = page_file("page.css")
    assert css is not None
    light, dark = re.findall(r":root \{(.*?)\}", css.body.decode(), re.DOTALL)
    colours = re.compile(r"--(\w+): (#[0-9a-f]{6})")
    return {"light": dict(colours.findall(light)), "dark": dict(colours.findall(dark))}


def luminance(colour: str) -> float:
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("ink", ["ink", "soft", "accent", "good", "warn", "bad", "calm"])
def test_text_stands_out_from_what_it_is_on(theme: str, ink: str) -> None:
    colours = palettes()[theme]
    for ground in ("paper", "panel"):
        assert contrast(colours[ink], colours[ground]) >= ENOUGH, ground
