"""What answers of Cosmos DB mean: to be waited for, or for a person to change."""

import errno
import zlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from changefeed.feeds.cosmos.client import Container
from changefeed.feeds.cosmos.errors import ErrorAnswer
from changefeed.feeds.cosmos.failover import Failover
from changefeed.feeds.cosmos.requests import OF_READERS, Requests
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.cosmos.errors import OF_STORES


@pytest.mark.parametrize(
    ("status", "substatus", "passes"),
    [
        *((status, 0, False) for status in (400, 401, 403, 404, 413)),
        *((status, 0, True) for status in (408, 449, 500, 503)),
        (0, 0, True),  # no status: no answer
        (403, 3, True),  # writes have moved to another region
        (403, 1008, True),  # the account is moving
        (403, 5300, False),
        (404, 1002, True),  # a replica that lags
        (404, 3, False),
        (410, 1007, True),
        (429, 3200, True),
    ],
)
def test_what_may_pass_is_told_from_what_a_person_has_to_change(
    status: int, substatus: int, *, passes: bool
) -> None:
    problem = ErrorAnswer(status=status, substatus=substatus, message="it is 'shop'.")
    assert problem.may_pass == passes
    kind = StoreUnavailable if passes else StoreRefused
    assert isinstance(error := OF_STORES.error("here", problem), kind)
    assert ".;" not in str(error)


NO_HANDLES = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many")]
UNANSWERED = [*NO_HANDLES, ServiceRequestError("Too many open files"), RecursionError("again")]


@pytest.mark.parametrize("error", [*UNANSWERED, zlib.error("spoilt by a proxy")], ids=repr)
async def test_no_answer_and_no_file_handles_are_waited_for(error: Exception) -> None:
    with pytest.raises(FeedUnavailable), OF_READERS.errors("here"):
        raise error
    with pytest.raises(StoreUnavailable), OF_STORES.errors("here"):
        raise error


async def test_an_identity_that_is_not_accepted_is_refused_with_advice() -> None:
    with pytest.raises(FeedRefused, match="az login"), OF_READERS.errors("here"):
        raise ClientAuthenticationError("none")
    with pytest.raises(StoreRefused, match="az login"), OF_STORES.errors("here"):
        raise ClientAuthenticationError("none")


async def test_a_list_of_ranges_that_is_none_is_no_answer_of_an_account() -> None:
    async def listed(*, raw_response_hook: Any, **_: object) -> AsyncIterator[None]:
        page = SimpleNamespace(status_code=200, headers={}, body=lambda: b"<html>")
        raw_response_hook(SimpleNamespace(http_response=page))
        yield

    container: Any = SimpleNamespace(read_feed_ranges=listed)
    properties = {"_rid": "rid", "partitionKey": {"paths": ["/pk"]}}
    opened = Container(where="here", failover=Failover(container), properties=properties)
    with pytest.raises(FeedUnavailable, match="here: the server is not a Cosmos DB account"):
        await Requests(opened).look()
