"""What every place for dead letters promises. A new one is one more line in PLACES."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Change, Operation
from changefeed.observers.dead_letters import (
    DeadLetter,
    DeadLetters,
    LetterError,
    MemoryDeadLetters,
    open_dead_letters,
)
from changefeed.observers.dead_letters.letter import failure_of
from changefeed.runtime.errors import Failure, StoreMissing
from cosmos_emulator.testing import running
from tests.support import make, servers
from tests.support.independent_cosmos import independent_cosmos
from tests.support.lease_containers import KEYS, fresh_address
from tests.support.thirdparty import importable, site_with_shelf

Connect = Callable[..., AbstractAsyncContextManager[DeadLetters]]
"""Opens the same place once more, with other options if there are such."""
Place = Callable[[Path], AbstractAsyncContextManager[Connect]]
_OPTIONS = OpenOptions(backends={name: {"key": key} for name, key in KEYS.items()})


def opening(address: str) -> Connect:
    return lambda **options: open_dead_letters(address, replace(_OPTIONS, **options))


def in_memory(_: Path) -> AbstractAsyncContextManager[Connect]:
    letters = MemoryDeadLetters()
    return nullcontext(lambda: nullcontext(letters))


def at(address: str) -> Place:
    return lambda folder: nullcontext(opening(address.format(folder)))


def over(kind: str) -> Place:
    return lambda folder: nullcontext(opening(fresh_address(kind, folder)))


def apart(kind: str, shared: str, own: str) -> Place:
    """Be in a schema or container of its own, instead of the one that all tests share."""
    return lambda folder: nullcontext(opening(fresh_address(kind, folder).replace(shared, own)))


@asynccontextmanager
async def over_redis(folder: Path) -> AsyncIterator[Connect]:
    async with over("redis")(folder) as connect:
        servers.redis().ask("CONFIG", "SET", "appendonly", "yes")
        yield connect
        servers.redis().ask("CONFIG", "SET", "appendonly", "no")


@asynccontextmanager
async def over_cosmos(_: Path) -> AsyncIterator[Connect]:
    """Over the emulator, which has no such container yet."""
    async with running() as url:
        yield opening(f"cosmos+{url}d/letters")


@asynccontextmanager
async def over_independent_cosmos(_: Path) -> AsyncIterator[Connect]:
    """Over an endpoint that others have written; skipped where it cannot be had."""
    url = await independent_cosmos()
    yield opening(f"cosmos+{url}d/letters?prefix={uuid.uuid4().hex}")


@asynccontextmanager
async def of_a_third_party(folder: Path) -> AsyncIterator[Connect]:
    """In a store that another package brings."""
    with importable(site_with_shelf(folder / "site")):
        yield opening(f"shelf:{folder / 'letters'}")


PLACES = [
    pytest.param(in_memory, id="memory"),
    pytest.param(at("jsonl:{}/made/letters.jsonl"), id="jsonl"),
    pytest.param(at("sqlite:{}/made/letters.db"), id="sqlite"),
    pytest.param(over("postgres"), id="postgres"),
    pytest.param(over_redis, id="redis"),
    pytest.param(over("blob"), id="blob"),
    pytest.param(over_cosmos, id="cosmos"),
    pytest.param(over_independent_cosmos, id="cosmos-independent"),
    pytest.param(of_a_third_party, id="third-party"),
]
NOT_THERE_YET = [
    *[x for x in PLACES if x.id in {"jsonl", "sqlite", "cosmos"}],
    pytest.param(apart("postgres", "?fleet=", "?schema="), id="postgres"),
    pytest.param(apart("blob", "/leases/", f"/letters-{uuid.uuid4().hex}/"), id="blob"),
]


@pytest.fixture(params=PLACES)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    async with request.param(tmp_path) as connect:
        yield connect


@pytest.fixture
async def letters(connect: Connect) -> AsyncIterator[DeadLetters]:
    async with connect() as letters:
        yield letters


async def test_what_was_put_is_there(letters: DeadLetters) -> None:
    await letters.put(make.letter(1))
    assert await letters.get(make.letter(1).id) == make.letter(1)
    assert await make.whole(letters) == [make.letter(1)]


async def test_a_change_as_large_as_feeds_deliver_is_kept_and_removed(connect: Connect) -> None:
    """An item of Cosmos DB has 2 MB, and so has the image before it."""
    large = make.letter(1, body=b'"' + b"\xc3\xbc" * 1_000_000 + b'"')
    async with connect() as letters, connect() as others:
        await asyncio.gather(
            letters.put(large), others.put(msgspec.structs.replace(large, epoch=8))
        )
        (kept,) = await make.whole(letters)
        assert kept.change == large.change
        assert await make.whole(others) == [kept]
        assert await letters.remove(large.id)
        assert await others.list() == []
        await others.put(large)
        assert await letters.get(large.id) == large


@pytest.mark.parametrize("connect", NOT_THERE_YET, indirect=True)
async def test_who_only_looks_makes_nothing(connect: Connect) -> None:
    for _ in range(2):
        with pytest.raises(StoreMissing):
            async with connect(must_exist=True):
                pass
    async with connect() as letters:
        await letters.put(make.letter(1))
    async with connect(must_exist=True) as letters:
        assert await make.whole(letters) == [make.letter(1)]


async def test_what_was_never_put_is_not(letters: DeadLetters) -> None:
    assert await letters.get(make.letter(1).id) is None
    assert await letters.list() == []
    assert not await letters.remove(make.letter(1).id)


@pytest.mark.parametrize(
    "strange",
    [
        make.change(1, body=b"\xff\x00 not even text\n"),
        make.change(2, body=b"", operation=Operation.DELETE),
        make.change(3, key="ü\n\u2028'\"", range_id="a:b:ü"),
        make.change(2**62),
        make.change(4, key="\N{GRINNING FACE}" * 390_000),
    ],
)
async def test_a_change_comes_back_as_it_was(letters: DeadLetters, strange: Change) -> None:
    put = DeadLetter(
        feed="orders",
        observer="",
        fleet="",
        change=strange,
        failure=LetterError(kind="E", text="\u2028\n", trace=""),
        attempts=1,
        host="ü",
        epoch=0,
        failed_us=0,
    )
    await letters.put(put)
    assert await letters.get(put.id) == put
    assert await letters.list() == [put.head]


async def test_a_letter_is_kept_whatever_the_error_says(letters: DeadLetters) -> None:
    error = ValueError("no such town: \ud800\udfff\0\x1b" + 100_000 * "x")
    put = msgspec.structs.replace(make.letter(1), failure=failure_of(error))
    await letters.put(put)
    assert await make.whole(letters) == [put]
    assert put.failure.text.startswith("no such town: \\ud800\\udfff\\x00\\x1bxxx")


async def test_the_first_letter_of_a_change_stays(letters: DeadLetters) -> None:
    await letters.put(make.letter(1, text="first"))
    await letters.put(make.letter(1, text="second"))
    assert [x.error for x in await letters.list()] == ["first"]


async def test_letters_of_several_feeds_observers_and_fleets_do_not_displace_each_other(
    letters: DeadLetters,
) -> None:
    several = [
        make.letter(1, feed="invoices"),
        make.letter(1, feed="orders"),
        make.letter(1, feed="orders", observer="billing:Billing", fleet="sqlite:/a.db"),
        make.letter(1, feed="orders", observer="billing:Billing", fleet="sqlite:/b.db"),
        make.letter(1, feed="orders", observer="mail:Mail", fleet="sqlite:/b.db"),
    ]
    for one in several:
        await letters.put(one)
    assert await make.whole(letters) == sorted(several, key=lambda x: x.id)
    for one in several:
        assert await letters.get(one.id) == one
        assert await letters.remove(one.id)
        assert await letters.get(one.id) is None
    assert await letters.list() == []


async def test_another_change_under_an_id_that_is_taken_is_refused_and_the_first_one_stays(
    letters: DeadLetters,
) -> None:
    await letters.put(make.letter(1))
    with pytest.raises(Failure, match=r"the id .*r1:1, .*discard"):
        await letters.put(make.letter(1, body=b'{"n":2}'))
    assert await make.whole(letters) == [make.letter(1)]


async def test_they_are_listed_by_range_and_then_by_sequence(letters: DeadLetters) -> None:
    for range_id, sequence in [("r2", 1), ("r1", 10), ("r1", 9), ("r10", 3)]:
        await letters.put(make.letter(sequence, range_id=range_id))
    found = [(x.range_id, x.sequence) for x in await letters.list()]
    assert found == [("r1", 9), ("r1", 10), ("r10", 3), ("r2", 1)]


async def test_what_was_removed_is_gone_and_may_come_again(letters: DeadLetters) -> None:
    await letters.put(make.letter(1))
    await letters.put(make.letter(2))
    assert await letters.remove(make.letter(1).id)
    assert not await letters.remove(make.letter(1).id)
    assert await make.whole(letters) == [make.letter(2)]
    await letters.put(make.letter(1, text="again"))
    assert await letters.get(make.letter(1).id) == make.letter(1, text="again")


async def test_letters_outlive_the_connection(connect: Connect) -> None:
    async with connect() as first:
        await first.put(make.letter(1))
        await first.put(make.letter(2))
        await first.remove(make.letter(2).id)
    async with connect() as second:
        assert await make.whole(second) == [make.letter(1)]


async def test_many_may_write_at_once(connect: Connect) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect()) for _ in range(5)]
        puts = [x.put(make.letter(n)) for n in range(8) for x in clients]
        await asyncio.gather(*puts)
        removed = await asyncio.gather(*(x.remove(make.letter(3).id) for x in clients))
        assert sorted(removed) == [False] * 4 + [True]
        for client in clients:
            assert [x.sequence for x in await client.list()] == [0, 1, 2, 4, 5, 6, 7]


async def test_they_may_be_opened_by_many_at_once(connect: Connect) -> None:
    async def put(n: int) -> None:
        async with connect() as letters:
            await letters.put(make.letter(n))

    await asyncio.gather(*(put(n) for n in range(8)))
    async with connect() as letters:
        assert len(await letters.list()) == 8
