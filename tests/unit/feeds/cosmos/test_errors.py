"""What answers of Cosmos DB mean: to be waited for, or for a person to change."""

import errno

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from changefeed.feeds.cosmos.errors import ErrorAnswer, Translator, problem_of
from changefeed.feeds.cosmos.requests import answering
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.cosmos.errors import translate_errors

TRANSLATOR = Translator(
    unavailable=FeedUnavailable, refused=FeedRefused, advice={404: "create it"}
)


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
    problem = ErrorAnswer(status=status, substatus=substatus)
    assert problem.may_pass == passes
    kind = FeedUnavailable if passes else FeedRefused
    assert type(TRANSLATOR.error("here", problem)) is kind


def test_a_throttled_request_says_when_to_ask_again() -> None:
    error = TRANSLATOR.error("here", problem_of(429, {"x-ms-retry-after-ms": "40"}, ""))
    assert isinstance(error, FeedUnavailable)
    assert error.retry_after == 0.04


def test_a_refusal_carries_the_advice_of_its_status() -> None:
    refused = str(TRANSLATOR.error("here", ErrorAnswer(status=404, message="gone")))
    assert refused == "here: 404 gone; create it"


NO_HANDLES = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.ENFILE, "Too many")]
UNANSWERED = [*NO_HANDLES, ServiceRequestError("Too many open files"), RecursionError("again")]


@pytest.mark.parametrize("error", UNANSWERED, ids=repr)
async def test_no_answer_and_no_file_handles_are_waited_for(error: Exception) -> None:
    with pytest.raises(FeedUnavailable):
        async with answering("here"):
            raise error
    with pytest.raises(StoreUnavailable), translate_errors("here"):
        raise error


async def test_an_identity_that_is_not_accepted_is_refused_with_advice() -> None:
    with pytest.raises(FeedRefused, match="az login"):
        async with answering("here"):
            raise ClientAuthenticationError("none")
    with pytest.raises(StoreRefused, match="az login"), translate_errors("here"):
        raise ClientAuthenticationError("none")
