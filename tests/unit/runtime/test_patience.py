"""Refusals of servers, that pass and that last."""

import asyncio
import itertools

import pytest

from changefeed.runtime.errors import Failure, UserError, answered
from changefeed.runtime.patience import Patience


def ask(patience: Patience, refusal: UserError | None, question: str = "read") -> None:
    with patience.asking(question, Failure):
        if refusal is not None:
            raise refusal


def refusal() -> UserError:
    return answered(UserError("403"))


async def test_a_refusal_counts_as_no_answer_until_it_has_lasted() -> None:
    patience = Patience(60)
    for _ in range(12):
        with pytest.raises(Failure, match="403"):
            ask(patience, refusal())
        await asyncio.sleep(5)
    with pytest.raises(UserError, match="403"):
        ask(patience, refusal())


async def test_an_answer_in_between_begins_the_time_anew_and_so_does_a_long_silence() -> None:
    patience = Patience(60)
    for pause in itertools.repeat(59, 5):
        with pytest.raises(Failure):
            ask(patience, refusal())
        await asyncio.sleep(pause)
        ask(patience, None)
    for pause in itertools.repeat(3600, 5):
        with pytest.raises(Failure):
            ask(patience, refusal())
        await asyncio.sleep(pause)


async def test_answers_to_other_questions_do_not_hide_one_that_is_refused() -> None:
    patience = Patience(10)
    with pytest.raises(Failure):
        ask(patience, refusal(), "write")
    await asyncio.sleep(10)
    ask(patience, None, "read")
    with pytest.raises(UserError):
        ask(patience, refusal(), "write")


async def test_what_no_server_has_answered_is_told_at_once() -> None:
    with pytest.raises(UserError, match="no address"):
        ask(Patience(60), UserError("no address"))


async def test_without_patience_every_refusal_is_told_at_once() -> None:
    with pytest.raises(UserError):
        ask(Patience(0), refusal())


async def test_a_client_that_tries_for_long_by_itself_is_waited_for_no_longer() -> None:
    patience = Patience(5)

    async def slow() -> None:
        with patience.asking("open", Failure):
            await asyncio.sleep(8)
            raise refusal()

    with pytest.raises(UserError):
        await slow()
