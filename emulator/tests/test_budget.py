"""A query that costs too much is refused, and meanwhile holds up nobody."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import pytest_asyncio

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.errors import CosmosError
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.fulltext import Words
from cosmos_emulator.query.matching import is_like
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, Reply, hand
from emulator.tests.process import process
from emulator.tests.test_query_functions import value

JOINS = " ".join(f"JOIN t{n} IN c.tags" for n in range(9))


def grown(expression: str, seed: str) -> str:
    """Return a query that does something thirty times with what it has made, as ``x``."""
    times = 30
    before = f"(SELECT VALUE {expression} FROM (SELECT VALUE " * times
    return f"SELECT VALUE {before}{seed}{') AS x)' * times} FROM c"


EVIL = {
    "joins": f"SELECT VALUE COUNT(1) FROM c {JOINS}",
    "a subquery": f"SELECT VALUE EXISTS (SELECT VALUE 1 FROM c {JOINS} WHERE false) FROM c",
    "arrays that double": grown("ARRAY_CONCAT(x, x)", "[1]"),
    "a value that is named twice": grown("[x, x]", "[1]"),
    "an object that is named twice": grown("{a: x, b: x}", "1"),
    "a comparison of what is named twice": grown("x = x ? [x, x] : 1", "[1]"),
    "a text of what is named twice": grown("ToString([x, x])", "[1]"),
    "a set of what is named twice": grown("SetUnion([x, [x]], [])", "[1]"),
    "an item, often": f"SELECT {', '.join(f'c AS c{n}' for n in range(9000))} FROM c",
    "texts": f"SELECT VALUE REPLACE(c.long, 'a', '{'b' * 40}') FROM c JOIN t IN c.tags "
    "JOIN u IN c.tags ORDER BY c.id",
    "comparisons": f"SELECT VALUE {' AND '.join(['c.many = c.many'] * 490)} FROM c",
    "functions": f"SELECT VALUE [{', '.join(['SetUnion(c.many, [])'] * 900)}] FROM c",
    "lists": f"SELECT VALUE c.id IN ({', '.join(['[c.many]'] * 900)}) FROM c",
    "different values": "SELECT DISTINCT VALUE c.many FROM c JOIN t IN c.many",
    "groups": "SELECT COUNT(1) AS n FROM c JOIN t IN c.many GROUP BY c.many",
    "orders": f"SELECT VALUE 1 FROM c JOIN t IN c.many ORDER BY {', '.join(['c.id'] * 900)}",
    "a regular expression": "SELECT VALUE REGEXMATCH(c.long, '(a?){500}(a|aa)+b') FROM c",
}
ROWS = "FROM c JOIN t IN c.tags JOIN u IN c.tags JOIN v IN c.tags"
SAFE = {
    "distances": f"SELECT VALUE t {ROWS} ORDER BY VectorDistance([t, u, v, 1], [1, 2, 3, 4])",
    "words": f"SELECT VALUE COUNT(1) {ROWS} WHERE FullTextContains(c.text || ' b', 'b')",
    "a long word": "SELECT VALUE FullTextContains(c.long, 'a') FROM c",
    "alternatives": "SELECT VALUE REGEXMATCH(c.text, '^(a|aa)+$') FROM c",
    "repetitions": "SELECT VALUE REGEXMATCH(c.text, '^((a{0,9}){0,9}){0,9}$', 'i') FROM c",
    "many %": f"SELECT VALUE c.long LIKE '{'%x' * 9000}%y' FROM c",
    "many % and _": f"SELECT VALUE c.text LIKE '{'%a_' * 9000}%y' FROM c",
    "brackets": f"SELECT VALUE {'(' * 100}false{')' * 100} FROM c",
    "conditions": f"SELECT VALUE {' OR '.join(['c.n = 1'] * 500)} FROM c",
    "values": f"SELECT VALUE c.n IN ({', '.join(['1'] * 16_000)}) FROM c",
}
LONG = {
    "too many letters": f"SELECT * FROM c WHERE c.text != '{'a' * 262_144}'",
    "too many joins": f"SELECT VALUE 1 FROM c {JOINS} JOIN t9 IN c.tags JOIN t10 IN c.tags",
    "too many conditions": f"SELECT VALUE {' OR '.join(['c.n = 1'] * 502)} FROM c",
    "too many demands": f"SELECT VALUE {' AND '.join(['c.n = 1'] * 502)} FROM c",
    "too many values": f"SELECT VALUE c.n IN ({', '.join(['1'] * 16_001)}) FROM c",
    "too many words": f"SELECT VALUE [{', '.join(['1'] * 30_000)}] FROM c",
    "too many brackets": f"SELECT VALUE {'(' * 5_000}1{')' * 5_000} FROM c",
}


@asynccontextmanager
async def with_an_item(url: str) -> AsyncIterator[Hand]:
    async with hand(url) as by_hand:
        item = {"id": "1", "pk": "p", "tags": [*range(20)], "text": "a" * 60 + "b"}
        item |= {"long": "a" * 200_000, "many": [*range(100_000)]}
        assert (await by_hand.send("POST", DOCS, item, key="p")).status in {201, 409}
        yield by_hand


def with_seconds(count: int) -> Any:
    """A fixture of an emulator in a process of its own, where a page may take so long."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module")
    async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
        async with process(tmp_path_factory.mktemp("q"), f"--query-seconds={count}") as (
            _,
            url,
        ):
            yield url

    return url


two_seconds, a_minute = with_seconds(2), with_seconds(60)


async def answered_beside_reads(text: str, by_hand: Hand) -> Reply:
    """Return the answer to a query; meanwhile reads do not wait for it."""
    began, took = time.perf_counter(), list[float]()
    query = asyncio.create_task(by_hand.query(text))
    while not query.done() or not took:
        start = time.perf_counter()
        assert (await by_hand.send("GET", f"{DOCS}/1", key="p")).status == 200
        took.append(time.perf_counter() - start)
    answer = await query
    assert median(took) < max(1, (time.perf_counter() - began) / 2)
    return answer


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", [*EVIL, *LONG])
async def test_a_query_that_costs_too_much_is_refused_and_reads_go_on(
    kind: str, two_seconds: str
) -> None:
    async with with_an_item(two_seconds) as by_hand:
        answer = await answered_beside_reads((EVIL | LONG)[kind], by_hand)
        assert answer.status == 400, answer.body


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kind", SAFE)
async def test_a_query_that_only_looks_costly_is_answered(kind: str, a_minute: str) -> None:
    async with with_an_item(a_minute) as by_hand:
        answer = await answered_beside_reads(SAFE[kind], by_hand)
        assert answer.status == 200, answer.body


async def test_a_query_that_nobody_waits_for_does_not_keep_the_process(tmp_path: Path) -> None:
    arguments = ("--query-seconds=600",)
    async with process(tmp_path, *arguments) as (started, url), with_an_item(url) as by_hand:
        evil = [asyncio.create_task(by_hand.query(x)) for x in [*EVIL.values()][:8]]
        await by_hand.send("GET", f"{DOCS}/1", key="p")
        started.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(started.wait(), 60) == 0
        await asyncio.wait(evil)


@pytest.mark.parametrize("where", ["/dbs", "/dbs/d/colls"])
async def test_a_list_is_queried_within_the_budget_too(where: str) -> None:
    settings = EmulatorSettings(port=0, query_seconds=1)
    async with running(settings) as url, with_an_item(url) as by_hand:
        headers = {"x-ms-documentdb-isquery": "True", "Content-Type": "application/query+json"}
        numbers = str([*range(20)])
        body = {"query": f"SELECT VALUE COUNT(1) FROM c {JOINS.replace('c.tags', numbers)}"}
        refused = await by_hand.send("POST", where, body, headers)
        assert (refused.status, "page" in str(refused.body)) == (400, True)


async def test_the_condition_of_a_patch_has_a_small_budget() -> None:
    async with running() as url, with_an_item(url) as by_hand:
        body = {
            "condition": f"FROM c WHERE EXISTS (SELECT VALUE 1 FROM c {JOINS} WHERE false)",
            "operations": [{"op": "set", "path": "/n", "value": 1}],
        }
        refused = await by_hand.send("PATCH", f"{DOCS}/1", body, key="p")
        assert refused.status == 400


async def test_a_text_beyond_the_limit_of_an_account_is_refused(url: str) -> None:
    async with with_an_item(url) as by_hand:
        text = f"SELECT * FROM c WHERE c.text IN ({','.join(['1'] * 140_000)})"
        refused = await by_hand.query(text)
        assert (refused.status, "262144" in str(refused.body)) == (400, True)


def test_a_budget_of_rows_ends() -> None:
    budget = Budget(seconds=60, rows=1000)
    for _ in range(1000):
        budget.row()
    with pytest.raises(CosmosError, match="1000 rows"):
        budget.row()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%x" * 20 + "%y", "x" * 50_000),
        ("%" + "a" * 5_000 + "b", "a" * 500_000),
        ("%a_" * 200 + "b", "a" * 20_000),
    ],
)
def test_like_takes_time_by_the_length_of_its_text(pattern: str, text: str) -> None:
    assert not is_like(text, pattern, None, Budget(seconds=30))


@pytest.mark.parametrize(
    ("text", "pattern", "fits"),
    [
        ("abc", "abc", True),
        ("abc", "ab", False),
        ("abc", "a%", True),
        ("abc", "%c", True),
        ("abc", "%b%", True),
        ("abcabc", "a%bc", True),
        ("abab", "ab%ab", True),
        ("aba", "ab%ba", False),
        ("abc", "_b_", True),
        ("abc", "__", False),
        ("abc", "%%", True),
        ("", "%", True),
        ("", "", True),
        ("a\nb", "a%b", True),
        ("axxbyyb", "a%[b-c]%b", True),
        ("axxdyyd", "a%[^d]d", True),
        ("100%", "100!%", True),
        ("100x", "100!%", False),
        ("a_b", "%!_%", True),
    ],
)
def test_like_means_what_it_says(text: str, pattern: str, *, fits: bool) -> None:
    assert is_like(text, pattern, "!", Budget(seconds=30)) is fits


@pytest.mark.parametrize(
    "expression",
    [
        "REPLACE(" * 8 + "'a'" + ", 'a', 'aaaaaaaaaaaaaaaaaaaa')" * 8,
        "(SELECT VALUE x || x FROM (SELECT VALUE " * 30 + "'ab'" + ") AS x)" * 30,
    ],
)
def test_a_text_that_grows_beyond_all_bounds_is_refused(expression: str) -> None:
    with pytest.raises(CosmosError, match="more than 4194304"):
        value(expression)


def test_a_phrase_in_a_long_text_is_not_looked_for_beyond_the_budget() -> None:
    text = Words("en-US", Budget(seconds=60)).of("a " * 1000)
    with pytest.raises(CosmosError, match="--query-seconds"):
        Words("en-US", Budget(seconds=0)).times("a b", text)


def test_numbers_do_not_grow_beyond_all_bounds() -> None:
    squares = "(SELECT VALUE x * x FROM (SELECT VALUE " * 12 + "7" + ") AS x)" * 12
    assert value(squares) is None or isinstance(value(squares), float)
