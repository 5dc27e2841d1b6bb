"""What Redis answers, in the errors that its client makes of it."""

import pytest
from redis.exceptions import (
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.redis.errors import translate_errors


@pytest.mark.parametrize(
    "error",
    [
        ReadOnlyError("You can't write against a read only replica.", status_code="READONLY"),
        OutOfMemoryError("command not allowed when memory is used", status_code="OOM"),
        ResponseError("Error running script (call to f_1): @user_script: 8: -READONLY You"),
        ResponseError("MISCONF Redis is configured to save RDB snapshots"),
    ],
)
def test_what_passes_is_known_with_its_first_word_and_without(error: RedisError) -> None:
    with pytest.raises(StoreUnavailable), translate_errors("redis"):
        raise error


@pytest.mark.parametrize("text", ["unknown command 'ASK'", "user BUSY has no permissions"])
def test_a_word_in_the_middle_of_a_sentence_does_not_pass(text: str) -> None:
    with pytest.raises(StoreRefused), translate_errors("redis"):
        raise ResponseError(text, status_code="ERR")
