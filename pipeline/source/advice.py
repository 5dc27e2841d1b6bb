"""What feeds advise, in the words of queries.

Feeds speak to hosts, which keep positions in leases. A query keeps them in a checkpoint, and
has no lease to reset. So what a feed refuses is said again where planners
and tasks read it.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from changefeed.feeds.errors import FeedRefused
from changefeed.runtime.errors import UserError

_RESET: Final = "eset the leases? of this \\w+(?: to start it again)?"
_AGAIN: Final = "tart the query again with a new checkpoint directory"
_WORDS: Final = (
    (re.compile(f"R{_RESET}"), f"S{_AGAIN}"),
    (re.compile(f"r{_RESET}"), f"s{_AGAIN}"),
    (re.compile(r"R(eset this range to its beginning)"), f"S{_AGAIN}"),
    (re.compile(r"the leases are those of another"), "the checkpoint is that of another"),
    (re.compile(r"the positions of its leases"), "the positions of the query"),
    (re.compile(r"while no host was looking"), "while no query was running"),
    (re.compile(r"a lease without bounds \(FeedRange\)"), "a position without bounds"),
)


def in_words_of_queries(text: str) -> str:
    """Return advice to hosts as advice to those who run a query; any other text as it is."""
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text


@contextmanager
def query_advice() -> Iterator[None]:
    """Raise ``UserError`` for a ``FeedRefused`` whose advice is meant for hosts."""
    try:
        yield
    except FeedRefused as error:
        text = in_words_of_queries(str(error))
        if text == str(error):
            raise
        raise UserError(text) from error
