"""The observer that posts changes, and a real server that answers as it likes."""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from changefeed.feeds.feed import Change, Operation
from changefeed.observers.http import CONTENT_TYPE, HttpObserver
from changefeed.observers.registry import load_observer
from changefeed.runtime.errors import UserError
from changefeed.testing.observers import DeliveryResult, RecordingContext, deliver
from tests.support import make
from tests.support.certificates import Authority
from tests.support.commands import PLACES, a_log_of, running
from tests.support.looking import until
from tests.support.processes import PATIENCE

FAR_AWAY = "Thu, 01 Jan 2026 00:00:00 +99999999999999999999"


class Endpoint:
    """Answers 200, or what it was told to; keeps what was posted."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: list[web.Response] = []
        self.posts: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.connections = set[object]()
        self.answers_at_all = asyncio.Event()
        self.answers_at_all.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.posts.append(await request.read())
        self.headers.append({x.lower(): y for x, y in request.headers.items()})
        self.connections.add(request.transport)
        await self.answers_at_all.wait()
        return self.answers.pop(0) if self.answers else web.Response()

    @property
    def events(self) -> list[list[dict[str, Any]]]:
        return [json.loads(x) for x in self.posts]

    @property
    def sequences(self) -> list[list[int]]:
        return [[int(x["sequence"]) for x in post] for post in self.events]


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    made = Endpoint()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    async with TestServer(app) as server:
        made.url = str(server.make_url("/changes?code=hidden"))
        yield made


def some(count: int, *, keys: int = 2) -> list[Change]:
    return [make.change(n, key=f"k{n % keys}") for n in range(1, count + 1)]


async def post(
    endpoint: Endpoint, changes: Sequence[Change], *, batch_size: int = 100, **options: Any
) -> DeliveryResult:
    return await deliver(
        HttpObserver,
        changes,
        options={"url": endpoint.url, **options},
        batch_size=batch_size,
        context=make.context(),
    )


def failing(*ids: str) -> web.Response:
    return web.json_response({"batchItemFailures": [{"itemIdentifier": x} for x in ids]})


async def test_a_change_is_an_event_with_its_body_as_it_is(endpoint: Endpoint) -> None:
    changes = [
        make.change(
            3,
            key="ada",
            operation=Operation.REPLACE,
            body=b'{"price": 1.50, "big": 1e400}',
            previous=b'{"price": 1}',
        ),
        make.change(4, key="ada", operation=Operation.DELETE, body=b""),
        make.change(5, key="ada", body=b'{"torn": "\xff'),
        make.change(6, key="ada", body=b"[" * 100_000 + b"]" * 100_000),
    ]
    assert (await post(endpoint, changes)).done_up_to == 6
    assert endpoint.headers[0]["content-type"] == CONTENT_TYPE
    assert b'"data":{"price": 1.50, "big": 1e400}' in endpoint.posts[0]
    first, deleted, torn, deep = endpoint.events[0]
    del first["data"]
    assert first == {
        "id": "r1:3",
        "source": "changefeed",
        "type": "changefeed.replace",
        "time": "2023-11-14T22:13:20.000003Z",
        "subject": "id-3",
        "partitionkey": "ada",
        "sequence": "00000000000000000003",
        "range": "r1",
        "specversion": "1.0",
        "datacontenttype": "application/json",
        "previous": '{"price": 1}',
    }
    assert deleted["type"] == "changefeed.delete"
    assert not {"data", "data_base64", "datacontenttype"} & set(deleted)
    assert base64.b64decode(torn["data_base64"]) == changes[2].body
    assert base64.b64decode(deep["data_base64"]) == changes[3].body


async def test_batches_go_over_one_connection_in_order_and_bounded(endpoint: Endpoint) -> None:
    delivered = await post(endpoint, some(10), batch_size=7, max_body=700)
    assert delivered.done_up_to == 10
    assert [x for post in endpoint.sequences for x in post] == list(range(1, 11))
    assert max(map(len, endpoint.posts)) <= 700
    assert len(endpoint.posts) > 2
    assert len(endpoint.connections) == 1


async def test_a_change_that_fits_into_no_post_fails_alone(endpoint: Endpoint) -> None:
    large = make.change(3, key="k3", body=b'"' + b"x" * 1000 + b'"')
    delivered = await post(endpoint, [*some(2), large], max_body=700)
    assert "max_body" in str(delivered.failure)
    assert delivered.done_up_to in {None, 2}
    assert (await post(endpoint, some(2), max_body=700)).done_up_to == 2


async def test_what_the_endpoint_names_has_failed_and_what_follows_of_its_key(
    endpoint: Endpoint,
) -> None:
    endpoint.answers = [failing("r1:2")]
    context = make.context()
    delivered = await deliver(
        HttpObserver, some(6), options={"url": endpoint.url}, context=context
    )
    assert "r1:2" in str(delivered.failure)
    assert context.acknowledged == [1, 3, 5]  # of the key of 2 are 4 and 6


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        (web.Response(status=400, text="no such customer"), "no such customer"),
        (web.Response(status=500, text="\x1b[2Jfell over"), "500"),
        (web.Response(status=503), "503"),
        (web.Response(status=503, headers={"Retry-After": FAR_AWAY}), "503"),
        (web.Response(status=302, headers={"Location": "http://elsewhere/"}), "elsewhere"),
        (web.Response(body=b'{"batchItemFailures": [1]}'), "batchItemFailures"),
        (failing("r1:77"), "r1:77"),
        (failing(""), "not posted"),
        (web.Response(body=b"x" * (2**20 + 1)), str(2**20)),
    ],
    ids=[
        "refused",
        "broken",
        "away",
        "zone",
        "moved",
        "unreadable",
        "unknown",
        "nameless",
        "endless",
    ],
)
async def test_any_other_answer_is_a_failure_that_says_so(
    endpoint: Endpoint, answer: web.Response, fact: str
) -> None:
    endpoint.answers = [answer]
    delivered = await post(endpoint, some(3))
    assert fact in str(delivered.failure)
    assert "hidden" not in str(delivered.failure)
    assert str(delivered.failure).isprintable()
    assert (delivered.done_up_to, len(endpoint.posts)) == (None, 1)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "after", ["0", "Thu, 01 Jan 2026 00:00:00 GMT"], ids=["number", "date"]
)
async def test_who_asks_to_wait_is_asked_again(
    endpoint: Endpoint, status: int, after: str
) -> None:
    endpoint.answers = [web.Response(status=status, headers={"Retry-After": after})]
    assert (await post(endpoint, some(3))).done_up_to == 3
    assert endpoint.posts[0] == endpoint.posts[1]


async def test_nobody_waits_in_a_range_that_is_handed_over(endpoint: Endpoint) -> None:
    endpoint.answers = [web.Response(status=429, headers={"Retry-After": "60"})]
    context = RecordingContext(handing_over=True)
    async with asyncio.timeout(50):
        delivered = await deliver(
            HttpObserver, some(1), options={"url": endpoint.url}, context=context
        )
    assert isinstance(delivered.failure, ConnectionError)


async def test_posts_go_through_the_proxy_of_the_environment(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", endpoint.url.partition("/changes")[0])
    proxy, endpoint.url = endpoint, "http://away.example/changes"
    assert (await post(endpoint, some(2))).done_up_to == 2
    assert [x["host"] for x in proxy.headers] == ["away.example"]


async def test_an_endpoint_shows_a_certificate_that_this_process_trusts(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("127.0.0.1"))
    a_log_of(3, tmp_path)
    app = web.Application()
    app.router.add_post("/", endpoint.answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=context)
    async with server:
        endpoint.url = str(server.make_url("/"))
        refused = await post(endpoint, some(2))
        assert isinstance(refused.failure, aiohttp.ClientConnectorCertificateError)
        async with running(
            "run",
            "--observer=http",
            f"--option=url={endpoint.url}",
            *PLACES,
            cwd=tmp_path,
            env={"SSL_CERT_FILE": str(authority.certificate)},
        ):
            await until(lambda: sum(map(len, endpoint.sequences)) == 3, within=PATIENCE)


async def test_an_answer_that_does_not_come_is_a_failure(endpoint: Endpoint) -> None:
    endpoint.answers_at_all.clear()
    delivered = await post(endpoint, some(1), timeout=0.2)
    endpoint.answers_at_all.set()
    assert isinstance(delivered.failure, TimeoutError)
    assert "0.2 s" in str(delivered.failure)


async def test_posts_are_signed_with_what_the_file_holds_by_then(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    secret, key = tmp_path / "secret", b"\x00\x01binary"
    secret.write_text("first\n")
    observer = HttpObserver(endpoint.url, secret_file=str(secret))
    context = make.context()
    await observer.open(context)
    await observer.process(context, some(1))
    secret.write_text("whsec_" + base64.b64encode(key).decode())
    await observer.process(context, some(2))
    await observer.close(context, None)  # type: ignore[arg-type]
    for used, headers, body in zip(
        (b"first", key), endpoint.headers, endpoint.posts, strict=True
    ):
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.digest(used, signed, hashlib.sha256)).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
    assert endpoint.headers[0]["webhook-id"] == "r1:1-1"


@pytest.mark.parametrize(
    ("option", "fact"),
    [
        ({"url": "ftp://here"}, "https://"),
        ({"url": "https:///changes"}, "host"),
        ({"url": "http://here:port/"}, "port"),
        ({"url": "http://ada:secret@here/"}, "authorization_file"),
        ({"timeout": 0.0}, "greater than 0"),
        ({"max_body": 0}, "greater than 0"),
        ({"secret_file": "missing"}, "missing"),
        ({"secret_file": "secret"}, "base64"),
        ({"authorization_file": "empty"}, "empty"),
    ],
    ids=["url", "nowhere", "port", "password", "timeout", "body", "missing", "secret", "empty"],
)
def test_what_cannot_be_is_refused_before_a_host_starts(
    option: dict[str, object], fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("whsec_no base64!")
    Path("empty").touch()
    with pytest.raises(UserError, match=fact):
        load_observer("http", {"url": "http://here", **option})
