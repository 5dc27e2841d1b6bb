"""Posts changes to an HTTP endpoint, so that an observer may be written in any language.

A post is a batch of CloudEvents 1.0 in JSON (``application/cloudevents-batch+json``), one event
for each change, in their order. With a secret it is signed as Standard Webhooks has it: the
receiver learns from whom it is, and of when.

What the answer means:

* 2xx: all is done. With the body ``{"batchItemFailures": [{"itemIdentifier": ID}]}`` all but
  the events of these ids, and the later ones of their keys.
* 429 or 503 with ``Retry-After``: the same is posted again then.
* Any other, or none in time: the batch has failed, as if an observer of your own had raised.

Sources: CloudEvents 1.0.2, JSON format, section 4, and its extensions ``partitionkey`` and
``sequence``; Standard Webhooks 1.0.0; the partial batch response of AWS Lambda.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import aiohttp
import msgspec
from pydantic import AfterValidator, Field

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import UserError
from changefeed.runtime.http_answer import bounded_body, retry_after
from changefeed.runtime.printable import printable
from changefeed.runtime.secret import Secret, read_secret

CONTENT_TYPE = "application/cloudevents-batch+json"
_JSON, _BYTES = "application/json", "application/octet-stream"
_DIGITS = 20
"""Of ``sequence``, which the specification wants to sort as text."""

_MAX_ANSWER = 2**20
_SHOWN = 200
"""How many characters of an answer an error repeats."""
_MAX_WAIT = 300.0
"""For how many seconds in all a call waits as ``Retry-After`` says."""
_LOOK = 0.5
_SUCCESS, _REDIRECT, _REFUSAL = 2, 3, 4
_ASK_TO_WAIT = {429, 503}


# What the options have to be is checked before a host starts (``observers.options``).


def _endpoint(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("should begin with https:// or http://")
    parts = urlsplit(url)
    if not parts.hostname or parts.port == 0:
        raise ValueError("should name a host, and a port of 1 to 65535 if any")
    if "@" in parts.netloc:
        raise ValueError(
            "should have no user and password: errors show it. Write 'Basic ' and the base64 "
            "of USER:PASSWORD to an authorization_file"
        )
    return url


def _readable(file: str) -> str:
    try:
        read_secret(Path(file))
    except UserError as error:
        raise ValueError(str(error)) from None
    return file


def _signing(file: str) -> str:
    _key(read_secret(Path(_readable(file))))
    return file


class HttpObserver:
    """Posts each batch to ``url`` over one connection, which is kept.

    A post has at most ``max_body`` bytes, and ``timeout`` seconds to be answered. ``source`` is
    what the events call the feed. ``secret_file`` holds the secret that posts are signed with:
    text, or ``whsec_`` and base64. ``authorization_file`` holds what is sent as
    ``Authorization``. Both files are read anew for each post. A proxy is taken from the
    environment; redirects are not followed.
    """

    def __init__(
        self,
        url: Annotated[str, AfterValidator(_endpoint)],
        *,
        source: str = "changefeed",
        secret_file: Annotated[str, AfterValidator(_signing)] = "",
        authorization_file: Annotated[str, AfterValidator(_readable)] = "",
        timeout: Annotated[float, Field(gt=0)] = 30.0,
        max_body: Annotated[int, Field(gt=0)] = 4 * 2**20,
    ) -> None:
        self._url = url
        self._source = source
        self._secret = Secret.in_file(Path(secret_file)) if secret_file else None
        self._authorization = (
            Secret.in_file(Path(authorization_file)) if authorization_file else None
        )
        self._timeout = timeout
        self._max_body = max_body

    async def open(self, _context: Context) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1),
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            trust_env=True,
        )

    async def close(self, _context: Context, _reason: CloseReason) -> None:
        await self._session.close()

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        for part, events in _parts(changes, self._source, self._max_body):
            failed = await self._post(context, part, b"[" + b",".join(events) + b"]")
            if failed or len(part) < len(changes):
                for change in _done(part, failed):
                    context.acknowledge(change)
            if failed:
                raise ValueError(
                    f"{self._shown} failed on {len(failed)} of {len(part)} events: "
                    f"{printable(', '.join(sorted(failed)))[:_SHOWN]}"
                )

    async def _post(
        self, context: Context, part: Sequence[Change], body: bytes
    ) -> Collection[str]:
        """Return the ids of the events that the endpoint has failed on."""
        now = asyncio.get_running_loop().time
        until = now() + _MAX_WAIT
        while True:
            answer = await self._answer(_name(part), body)
            if answer.kind == _SUCCESS:
                return self._failures(answer, {event_id(x) for x in part})
            wait = answer.retry_after
            if wait is None or now() + wait > until:
                raise self._refused(answer)
            await _sleep(context, wait)

    async def _answer(self, name: str, body: bytes) -> "_Answer":
        headers = {"Content-Type": CONTENT_TYPE}
        if self._authorization is not None:
            headers["Authorization"] = self._authorization.current()
        if self._secret is not None:
            headers |= signature(self._secret.current(), name, int(time.time()), body)
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                text = await bounded_body(answer, _MAX_ANSWER)
                if text is None:
                    raise ValueError(
                        f"the answer of the endpoint has more than {_MAX_ANSWER} bytes"
                    )
                return _Answer(answer.status, answer.headers, text)
        except TimeoutError as error:
            raise TimeoutError(
                f"{self._shown} did not answer within {self._timeout:g} s"
            ) from error

    def _failures(self, answer: "_Answer", posted: Collection[str]) -> Collection[str]:
        """Return the ids of events that have failed. An answer without such a list has none."""
        try:
            failures = msgspec.json.decode(answer.body, type=_Failures).items
        except msgspec.MsgspecError as error:
            if b"batchItemFailures" in answer.body:
                raise ValueError(
                    f"{self._shown} answered with unreadable batchItemFailures: {error}"
                ) from error
            return ()
        failed = {x.id for x in failures}
        if unknown := failed.difference(posted):
            raise ValueError(
                f"{self._shown} failed on events that were not posted to it: "
                f"{printable(', '.join(sorted(unknown)))[:_SHOWN]}. itemIdentifier should be "
                f"the id of an event as it came"
            )
        return failed

    def _refused(self, answer: "_Answer") -> Exception:
        said = printable(answer.body[:_SHOWN].decode("utf-8", "replace"))
        text = f"{self._shown} answered {answer.status}: {said}"
        if answer.kind == _REDIRECT:
            place = printable(answer.headers.get("Location", ""))
            return ValueError(f"{text}. Redirects are not followed: set url to {place}")
        return ValueError(text) if answer.kind == _REFUSAL else ConnectionError(text)

    @property
    def _shown(self) -> str:
        """The address without what may be a secret."""
        return self._url.partition("?")[0]


def event_id(change: Change) -> str:
    """Return the id of the event of a change: no other change of its source has it."""
    return f"{change.range_id}:{change.sequence}"


def signature(secret: str, name: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a post of this name, made so many seconds after 1970."""
    signed = f"{name}.{seconds}.".encode() + body
    digest = base64.b64encode(hmac.digest(_key(secret), signed, hashlib.sha256)).decode()
    return {
        "webhook-id": name,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{digest}",
    }


def _key(secret: str) -> bytes:
    """Return what a secret stands for. Raise ``ValueError`` where that cannot be read."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error as error:
        raise ValueError(f"what follows whsec_ in the secret is no base64: {error}") from None


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> int:
        """The first digit of the status."""
        return self.status // 100

    @property
    def retry_after(self) -> float | None:
        """How many seconds to wait, if it asks for that."""
        if self.status not in _ASK_TO_WAIT:
            return None
        return retry_after(self.headers.get("Retry-After", ""))


class _Failure(msgspec.Struct):
    id: str = msgspec.field(name="itemIdentifier")


class _Failures(msgspec.Struct):
    items: list[_Failure] = msgspec.field(name="batchItemFailures", default_factory=list)


class _Event(msgspec.Struct, omit_defaults=True):
    """A change as CloudEvents has it, with ``range`` and ``previous`` beside."""

    id: str
    source: str
    type: str
    time: datetime
    subject: str
    partitionkey: str
    sequence: str
    range: str
    specversion: str
    datacontenttype: str = ""
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    data_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    previous: str | msgspec.UnsetType = msgspec.UNSET


_encode = msgspec.json.Encoder().encode


def _event(change: Change, source: str) -> bytes:
    event = _Event(
        id=event_id(change),
        source=source,
        type=f"changefeed.{change.operation}",
        time=change.committed_at,
        subject=change.id,
        partitionkey=change.key,
        sequence=f"{change.sequence:0{_DIGITS}}",
        range=change.range_id,
        specversion="1.0",
    )
    if change.previous is not None:
        event.previous = change.previous.decode("utf-8", "replace")
    if _is_json(change.body):
        event.datacontenttype, event.data = _JSON, msgspec.Raw(change.body)
    elif change.body:
        event.datacontenttype, event.data_base64 = _BYTES, change.body
    return _encode(event)


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
        body.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _parts(
    changes: Sequence[Change], source: str, most: int
) -> Iterator[tuple[Sequence[Change], Sequence[bytes]]]:
    """Yield changes that fit into one post, in their order, with their events."""
    begin, events, size = 0, list[bytes](), 1
    for at, change in enumerate(changes):
        event = _event(change, source)
        if size + len(event) + 1 > most and events:
            yield changes[begin:at], events
            begin, events, size = at, [], 1
        if size + len(event) + 1 > most:
            raise ValueError(
                f"the event of change {change.sequence} of range {change.range_id!r} has "
                f"{len(event)} bytes, and a post takes {most}: raise max_body"
            )
        events.append(event)
        size += len(event) + 1
    yield changes[begin:], events


def _done(part: Sequence[Change], failed: Collection[str]) -> Iterator[Change]:
    """Yield what has not failed, and is not behind a change of its key that has."""
    held = set[str]()
    for change in part:
        if event_id(change) in failed:
            held.add(change.key)
        if change.key not in held:
            yield change


def _name(part: Sequence[Change]) -> str:
    """Return the name of a post: the same whenever the same changes are posted."""
    return f"{event_id(part[0])}-{part[-1].sequence}"


async def _sleep(context: Context, seconds: float) -> None:
    """Wait. Raise ``ConnectionError`` as soon as the range is to be handed over."""
    now = asyncio.get_running_loop().time
    until = now() + seconds
    while (left := until - now()) > 0:
        if context.handing_over:
            raise ConnectionError("the endpoint asked to wait, and the range is handed over")
        await asyncio.sleep(min(left, _LOOK))
