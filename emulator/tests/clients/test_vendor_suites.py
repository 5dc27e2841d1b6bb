"""The vendors' own suites pass, but for what ``vendor_suites.toml`` names with the reason."""

import asyncio
import re
import tomllib
from pathlib import Path

import pytest

from emulator.tests.clients.vendor_suites import SUITES, Results, results_of
from emulator.tests.process import process

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]
_NAMED = tomllib.loads((Path(__file__).parent / "vendor_suites.toml").read_text("utf-8"))
_LEAST = 0.95
_SAID = 2000


def named(patterns: dict[str, str], test: str) -> bool:
    return any(re.search(x, test) for x in patterns)


def rate(results: Results, out_of_scope: dict[str, str]) -> float:
    counted = [not why for name, why in results.items() if not named(out_of_scope, name)]
    return sum(counted) / len(counted)


@pytest.mark.parametrize("name", SUITES)
async def test_a_suite_passes_but_for_what_is_named(name: str, tmp_path: Path) -> None:
    suite, listed = SUITES[name], _NAMED[name]
    known = listed["out-of-scope"] | listed["not-yet"]
    suite.fetch()
    data = tmp_path / "data"
    async with process(tmp_path, "--tls", f"--data={data}", *suite.options) as (_, url):
        port = int(url.rsplit(":", 1)[1].strip("/"))
        certificate = data / "emulator.pem"
        results = await asyncio.to_thread(results_of, suite, port, certificate, tmp_path)
    failed = {x: why for x, why in results.items() if why}
    unknown = [f"{x}\n{why[-_SAID:]}" for x, why in failed.items() if not named(known, x)]
    assert not unknown, "\n\n".join(unknown)
    assert {x for x in known if not any(re.search(x, y) for y in failed)} == set(), "they pass"
    assert rate(results, listed["out-of-scope"]) >= _LEAST
