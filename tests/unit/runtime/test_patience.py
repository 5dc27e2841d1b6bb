"""Refusals of servers, that pass and that last."""

import asyncio

import pytest

from changefeed.runtime.calls import Patience
from changefeed.runtime.errors import Failure, UserError, answered


async def ask(patience: Patience, refusal: UserError | None, question: str = "read") -> None:
    async def answer() -> None:
        if refusal is not None:
            raise refusal

    await patience.ask(question, answer(), Failure)


def refusal() -> UserError:
    return answered(UserError("403"))


async def test_a_refusal_counts_as_no_answer_until_it_has_lasted() -> None:
    patience = Patience(60)
    for _ in range(12):
        with pytest.raises(Failure, match="403"):
            await ask(patience, refusal())
        await asyncio.sleep(5)
    with pytest.raises(UserError, match="403"):
        await ask(patience, refusal())


async def test_answers_to_other_questions_do_not_hide_one_that_is_refused() -> None:
    patience = Patience(10)
    with pytest.raises(Failure):
        await ask(patience, refusal(), "write")
    await asyncio.sleep(10)
    await ask(patience, None, "read")
    with pytest.raises(UserError):
        await ask(patience, refusal(), "write")
