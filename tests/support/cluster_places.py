"""Places where clusters of brokers lie: a directory, and moto's S3 server."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tests.support.servers import Moto, Server


@dataclass(frozen=True, kw_only=True)
class ClusterPlace:
    """An address of a cluster, and the environment in which it is reached.

    ``server`` keeps it, if that is not the file system.
    """

    address: str
    environment: Mapping[str, str]
    server: Server | None = None

    def through(self, port: int) -> "ClusterPlace":
        """The same, reached through another port."""
        assert self.server is not None, "a directory has no port"
        old, new = f":{self.server.port}", f":{port}"
        moved = {k: v.replace(old, new) for k, v in self.environment.items()}
        return ClusterPlace(address=self.address, environment=moved, server=self.server)


def in_directory(folder: Path) -> ClusterPlace:
    return ClusterPlace(address=f"file://{folder}", environment={})


async def in_moto(server: Moto) -> ClusterPlace:
    """Make a bucket of its own in a server that runs."""
    name = f"brokers-{uuid.uuid4().hex[:8]}"
    async with (
        aiohttp.ClientSession() as session,
        session.put(f"{server.endpoint}/{name}") as made,
    ):
        assert made.status == 200, await made.text()
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": server.endpoint,
    }
    return ClusterPlace(address=f"s3://{name}/log", environment=environment, server=server)
