"""A broker that serves TLS from files, and clients that trust it, or do not."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from changefeed import Record
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.log.brokers.settings import WebSection
from changefeed.log.client.address import BrokersAddress
from changefeed.log.client.feed import BrokersFeed
from changefeed.log.client.producer import open_brokers_producer
from changefeed.log.stores.memory_store import MemoryStore
from tests.support.broker_cluster import ACCESS, COLLECTION, QUICK, address_of, broker
from tests.support.broker_processes import by_key
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.processes import PATIENCE


def over_tls(address: str) -> BrokersAddress:
    return BrokersAddress(urls=(f"https://{address}",), collection=COLLECTION)


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


@pytest.fixture
async def address(ours: Authority) -> AsyncIterator[str]:
    certificate, key = ours.issue("127.0.0.1")
    web = WebSection(certificate_file=certificate, key_file=key)
    async with broker(MemoryStore(), tls=web.tls) as (core, listening):
        await core.catalogs.create(COLLECTION, parts=2)
        yield listening


async def test_records_go_both_ways_where_the_authority_is_named(
    ours: Authority, address: str
) -> None:
    access = replace(ACCESS, ca_file=ours.certificate)
    async with open_brokers_producer(over_tls(address), access) as producer:
        await producer.send_many([Record(key=f"k{n}", body=b"%d" % n) for n in range(20)])
    async with BrokersFeed.open(over_tls(address), access) as feed:
        assert await by_key(feed) == ({f"k{n}": [n] for n in range(20)}, {})


@pytest.mark.parametrize("named", [True, False])
async def test_a_certificate_of_another_authority_is_refused_with_advice(
    tmp_path: Path, address: str, *, named: bool
) -> None:
    other = Authority(tmp_path / "other").certificate if named else None
    access = replace(ACCESS, ca_file=other)
    with pytest.raises(FeedRefused, match=r"not trusted.*signed it in CHANGEFEED_.*CA_FILE"):
        async with BrokersFeed.open(over_tls(address), access):
            pass
    with pytest.raises(FeedRefused, match="not trusted"):
        async with open_brokers_producer(over_tls(address), access):
            pass


@pytest.mark.parametrize("trusting", [True, False])
async def test_brokers_ping_each_other_over_tls_and_sign_in_the_store_where_they_cannot(
    ours: Authority, caplog: pytest.LogCaptureFixture, *, trusting: bool
) -> None:
    certificate, key = ours.issue("127.0.0.1")
    tls = WebSection(certificate_file=certificate, key_file=key).tls
    access = replace(ACCESS, ca_file=ours.certificate if trusting else None)
    store, patient = MemoryStore(), replace(QUICK, heartbeat=0.5, expiration=5.0)

    async def signs() -> set[str]:
        """Return the signs that are written within two heartbeats."""
        for name in "ab":
            store.objects.pop(f"brokers/{name}", None)
        await asyncio.sleep(2 * patient.heartbeat)
        return {x for x in store.objects if x.startswith("brokers/")}

    wanted = set() if trusting else {"brokers/a", "brokers/b"}
    async with (
        broker(store, "a", patient, tls=tls, access=access) as (first, _),
        broker(store, "b", patient, tls=tls, access=access),
        asyncio.timeout(PATIENCE),
    ):
        await first.wait_until_writing()
        while await signs() != wanted:
            pass
        assert {*first.status().living} == {"a", "b"}
    assert trusting != ("not trusted" in str([x.__dict__ for x in caplog.records]))


async def test_a_broker_that_is_not_there_is_told_as_the_system_says_it() -> None:
    with pytest.raises(FeedUnavailable, match=r"does not answer: Connection refused$"):
        async with BrokersFeed.open(address_of(f"127.0.0.1:{free_port()}"), ACCESS):
            pass


async def test_a_client_that_speaks_no_tls_and_a_broker_that_speaks_none_say_so(
    ours: Authority, address: str
) -> None:
    with pytest.raises(FeedUnavailable, match=r"http://127\.0\.0\.1.*does not answer"):
        async with BrokersFeed.open(address_of(address), ACCESS):
            pass
    async with broker(MemoryStore()) as (_, plain):
        access = replace(ACCESS, ca_file=ours.certificate)
        with pytest.raises(FeedRefused, match=r"brokers: in place of brokers\+tls:"):
            async with BrokersFeed.open(over_tls(plain), access):
                pass
