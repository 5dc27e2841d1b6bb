"""The sample that keeps vectors, as its README says, with a real model."""

import re
from pathlib import Path

from samples.vectors.search import search
from samples.vectors.store import VectorStore
from tests.acceptance.test_samples import FROM_HERE, ROOT
from tests.support.commands import QUICK, changefeed, running

ARTICLES = 8


async def test_articles_are_found_by_what_they_mean(tmp_path: Path) -> None:
    vectors = tmp_path / "data/vectors.db"
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    text = (ROOT / "samples/vectors/README.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^changefeed (.*)$", text, re.MULTILINE)
    produce, dry, run = (x.split() for x in commands)
    assert changefeed(*produce, cwd=tmp_path).returncode == 0
    async with running(*dry, *QUICK, cwd=tmp_path, env=FROM_HERE) as host:
        await host.says("lease.acquired")
        await host.stops()
    assert "(nothing was done)" in host.said
    assert not vectors.exists()
    async with running(*run, *QUICK, cwd=tmp_path, env=FROM_HERE) as host:
        await host.reaches(lambda: vectors.exists() and count(vectors) == ARTICLES)
        await host.stops()
    found = await search(vectors, "a recipe for the kitchen", 2)
    assert {x[1] for x in found} == {"a1", "a5"}


def count(vectors: Path) -> int:
    return len(VectorStore(vectors).made_of([f"a{n}" for n in range(1, ARTICLES + 1)]))
