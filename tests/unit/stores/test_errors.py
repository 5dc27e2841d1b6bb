"""What the clients of stores raise, in the errors of lease containers: what a host tries
again, and what a person has to change.
"""

import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager

import asyncpg
import pytest
from azure.core.exceptions import ServiceRequestError
from redis.exceptions import AuthenticationError, RedisClusterException, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError

from changefeed.feeds.cosmos.errors import Translator
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.blob.errors import translate_errors as of_blob
from changefeed.stores.cosmos.errors import OF_STORES
from changefeed.stores.postgres.errors import translate_errors as of_postgres
from changefeed.stores.redis.errors import translate_errors as of_redis

of_feed = Translator(unavailable=FeedUnavailable, refused=FeedRefused, advice={}).errors
Translate = Callable[[str], AbstractContextManager[None]]
CLIENTS = [
    pytest.param(of_postgres, OSError("no"), id="postgres"),
    pytest.param(of_redis, RedisConnectionError("no"), id="redis"),
    pytest.param(of_redis, RedisClusterException("no"), id="redis-cluster"),
    pytest.param(of_blob, ServiceRequestError("no"), id="blob"),
    pytest.param(OF_STORES.errors, ServiceRequestError("no"), id="cosmos"),
    pytest.param(of_feed, ServiceRequestError("no"), id="cosmos-feed"),
]


@pytest.mark.parametrize(("translate", "raised"), CLIENTS)
def test_a_connection_that_failed_is_tried_again(
    translate: Translate, raised: Exception
) -> None:
    with pytest.raises((StoreUnavailable, FeedUnavailable)), translate("there"):
        raise raised


@pytest.mark.parametrize(("translate", "raised"), CLIENTS)
def test_one_that_failed_for_its_certificate_is_refused_with_advice(
    translate: Translate, raised: Exception
) -> None:
    untrusted = ssl.SSLCertVerificationError(1, "self-signed")
    if isinstance(raised, RedisClusterException):
        untrusted_node = RedisConnectionError("no")
        untrusted_node.__cause__ = untrusted
        raised.__cause__ = untrusted_node
    else:
        raised.__cause__ = untrusted
    refusal = pytest.raises((StoreRefused, FeedRefused), match="not trusted")
    with refusal as refused, translate("there"):
        raise raised
    assert "=FILE" in str(refused.value) or "SSL_CERT_FILE" in str(refused.value)


def of_cluster(cause: Exception | None) -> RedisClusterException:
    error = RedisClusterException("Redis Cluster cannot be connected")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("cause", "meaning"),
    [
        (RedisConnectionError("refused"), StoreUnavailable),
        (OSError("no route"), StoreUnavailable),
        (of_cluster(None), StoreUnavailable),
        (None, StoreUnavailable),
        (AuthenticationError("WRONGPASS"), StoreRefused),
        (of_cluster(ResponseError("cluster support disabled")), StoreRefused),
    ],
)
def test_an_error_of_a_redis_cluster_is_what_its_node_answered(
    cause: Exception | None, meaning: type[Exception]
) -> None:
    with pytest.raises(meaning), of_redis("there"):
        raise of_cluster(cause)


def test_a_postgresql_that_closed_the_connection_is_tried_again() -> None:
    with pytest.raises(StoreUnavailable), of_postgres("there"):
        raise asyncpg.ConnectionDoesNotExistError("closed in the middle of operation")
