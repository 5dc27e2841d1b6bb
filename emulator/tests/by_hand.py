"""Ways to talk to an emulator: by hand, and by the real client."""

import base64
import hashlib
import hmac
import io
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote

import aiohttp
import msgspec
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY

DOCS = "/dbs/d/colls/c/docs"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def substatus(self) -> int:
        return int(self.headers.get("x-ms-substatus", "0"))

    @property
    def ids(self) -> list[str]:
        return [x["id"] for x in self.body["Documents"]] if self.body else []


@dataclass(frozen=True)
class Hand:
    """Sends requests as the REST reference describes them, and signs them itself."""

    url: str
    session: aiohttp.ClientSession

    async def send(
        self,
        verb: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        secret: str = DEVELOPMENT_KEY,
    ) -> Reply:
        sent = signed(verb, path, secret) | dict(headers or {})
        if key is not None:
            sent["x-ms-documentdb-partitionkey"] = f'["{key}"]'
        data = None if body is None else io.BytesIO(msgspec.json.encode(body))
        url = self.url.rstrip("/") + quote(path)
        async with self.session.request(verb, url, data=data, headers=sent) as got:
            text = await got.read()
            return Reply(got.status, got.headers, msgspec.json.decode(text) if text else None)

    async def feed(self, after: str | None = None, range_: str = "0", **extra: str) -> Reply:
        headers = {"A-IM": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": range_}
        if after is not None:
            headers["If-None-Match"] = after
        more = {k.replace("_", "-"): v for k, v in extra.items()}
        return await self.send("GET", DOCS, headers=headers | more)

    async def query(
        self, text: str, limit: int = 100, range_: str = "0", **parameters: Any
    ) -> Reply:
        """Ask one range, as clients do that merge what ranges answer."""
        one = {"x-ms-documentdb-partitionkeyrangeid": range_}
        return await self._query(text, limit, parameters, one)

    async def query_everywhere(self, text: str, limit: int = 100, **parameters: Any) -> Reply:
        return await self._query(text, limit, parameters, {})

    async def _query(
        self, text: str, limit: int, parameters: Mapping[str, Any], more: Mapping[str, str]
    ) -> Reply:
        given = [{"name": f"@{k}", "value": v} for k, v in parameters.items()]
        headers = {
            "x-ms-documentdb-isquery": "True",
            "Content-Type": "application/query+json",
            "x-ms-documentdb-query-enablecrosspartition": "True",
            "x-ms-max-item-count": str(limit),
            **more,
        }
        return await self.send("POST", DOCS, {"query": text, "parameters": given}, headers)

    async def control(self, verb: str, path: str, **body: Any) -> Any:
        url = f"{self.url}_emulator/{path}"
        async with self.session.request(verb, url, data=msgspec.json.encode(body)) as got:
            answer = await got.json()
            assert got.status == 200, answer
            return answer

    async def split(self, **body: Any) -> Any:
        return await self.control("POST", "split", database="d", container="c", **body)

    async def merge(self, *ranges: str, **body: Any) -> Any:
        where = {"database": "d", "container": "c", "ranges": ranges}
        return await self.control("POST", "merge", **where, **body)


def signed(verb: str, path: str, secret: str) -> dict[str, str]:
    """Return the headers of a signed request; the link of a list is its owner's."""
    parts = path.strip("/").split("/") if path != "/" else []
    kind = parts[-1 if len(parts) % 2 else -2] if parts else ""
    link = "/".join(parts[:-1] if len(parts) % 2 else parts)
    date = formatdate(usegmt=True)
    text = f"{verb.lower()}\n{kind}\n{unquote(link)}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(secret), text.encode(), hashlib.sha256).digest()
    token = f"type=master&ver=1.0&sig={base64.b64encode(digest).decode()}"
    return {"Authorization": quote(token, safe=""), "x-ms-date": date}


@asynccontextmanager
async def hand(url: str) -> AsyncIterator[Hand]:
    """Open a hand on a database ``d`` with a container ``c`` by ``/pk``."""
    async with aiohttp.ClientSession() as session:
        made = Hand(url, session)
        await made.send("POST", "/dbs", {"id": "d"})
        body = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        await made.send("POST", "/dbs/d/colls", body)
        yield made


async def container(client: CosmosClient, name: str = "c", **options: Any) -> ContainerProxy:
    database = await client.create_database_if_not_exists("d")
    made: ContainerProxy = await database.create_container_if_not_exists(
        name, PartitionKey("/pk"), **options
    )
    return made


def continuation(pages: Any) -> str:
    """Return where a pager of the real client stands; its type does not know of it."""
    return str(pages.continuation_token)


def entra_token(key: str = DEVELOPMENT_KEY, *, begins: float = -60, ends: float = 3600) -> str:
    """Return the token that tests of vendors' clients make for Microsoft's emulator."""
    claims = {"aud": "https://localhost.localhost", "nbf": int(time.time() + begins)}
    claims["exp"] = int(time.time() + ends)
    parts = (b'{"typ":"JWT","alg":"RS256"}', msgspec.json.encode(claims), key.encode())
    return ".".join(base64.urlsafe_b64encode(x).decode().rstrip("=") for x in parts)
