"""What a row knows of a producer, so that no request is stored twice. Pure.

Each producer numbers its requests to a row from 1 without a gap. The request that follows on
what is there is new; one behind that came too early. The last few are remembered by their
checksums: one of them that comes again, exactly as it was, is stored already, and is answered
as before. Another request under a number that is there is that of another producer with the
same id. To call it stored would lose its records without a word.

What a producer has given up may come late, after requests that followed on it. It is of an
earlier generation then, of which nothing is taken any more.
"""

from typing import Literal

from changefeed.log.format.flush import ProducerKey, ProducerState, StoredRequest
from changefeed.log.protocol.messages import AppendRequest

Verdict = Literal["new", "stored", "early", "taken"]


def verdict_on(request: AppendRequest, reached: ProducerState | None) -> Verdict:
    """Say what a request is to a row in which its producer has come so far."""
    last = 0
    if reached is not None:
        if request.generation < reached.generation:
            return "taken"
        if request.generation == reached.generation:
            last = reached.number
    if request.number > last:
        return "new" if request.number == last + 1 else "early"
    assert reached is not None, f"numbers count from 1: {request.number}"
    behind = last - request.number
    known = behind < len(reached.checks) and reached.checks[-1 - behind] == request.check
    return "stored" if known else "taken"


def stored_request(collection: str, request: AppendRequest) -> StoredRequest:
    """Return what an object says of a request that it holds."""
    return StoredRequest(
        collection, request.producer, request.generation, request.number, request.check
    )


def key_of(collection: str, request: AppendRequest) -> ProducerKey:
    return collection, request.producer
