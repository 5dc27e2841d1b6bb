"""The program of docs/exactly-once.md, with a server of PostgreSQL."""

import asyncio
import re
from pathlib import Path

import asyncpg

from tests.support import servers
from tests.support.commands import PLACES, QUICK, changefeed, running


async def test_the_program_of_the_page_books_what_is_written(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/exactly-once.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    url = servers.postgres().url
    (tmp_path / "shop.py").write_text(program.replace("postgresql://me@host/shop", url))
    client = await asyncpg.connect(url)
    await client.execute("drop table if exists bookings, changefeed_positions")
    await client.execute("create table bookings (account text, cents integer)")
    lines = "".join(f'{{"k": "ada", "cents": {n}}}\n' for n in range(3))
    made = changefeed("produce", "log", "-", "--key=k", cwd=tmp_path, stdin=lines)
    assert made.returncode == 0, made.stderr
    async with running("run", *PLACES, *QUICK, "--observer=shop:book", cwd=tmp_path):
        async with asyncio.timeout(60):
            count = "select count(*) from bookings"
            while await client.fetchval(count) < 3:  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)
    booked = await client.fetch("select account, cents from bookings order by cents")
    assert [tuple(x) for x in booked] == [("ada", 0), ("ada", 1), ("ada", 2)]
    await client.close()
