"""Many changes in one transaction: written together, and each undone alone if it is refused."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class FailedChange:
    """In the place of an answer: what was raised instead."""

    error: BaseException


def in_one_transaction(connection: sqlite3.Connection, works: Sequence[Work]) -> Sequence[Any]:
    """Do all of them as the only writer, in one commit; return their answers.

    Raise what SQLite raises, and then nothing is done.
    """
    assert not connection.in_transaction, "the last one was neither written nor undone"
    connection.execute("begin immediate")
    try:
        answers = [_by_itself(connection, work) for work in works]
        assert connection.in_transaction, "what comes together is written together"
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    return answers


def _by_itself(connection: sqlite3.Connection, work: Work) -> Any:
    """Do one of several, and undo it alone if it is refused."""
    connection.execute("savepoint one")
    try:
        answer = work(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - raised again where the answer is waited for
        connection.execute("rollback to one")
        answer = FailedChange(error)
    assert connection.in_transaction, "a refused change undoes itself alone"
    connection.execute("release one")
    return answer
