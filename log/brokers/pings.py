"""Pings over HTTP: one broker tells another its heartbeat, and gets that one's."""

from io import BytesIO

import msgspec

from changefeed.log.brokers.members import Heartbeat
from changefeed.log.client.connection import BrokerConnection, decoded


class Pings:
    """A ``Ping``. Brokers have one token, and all of them speak TLS or none does."""

    def __init__(self, connection: BrokerConnection, scheme: str) -> None:
        self._connection = connection
        self._scheme = scheme

    async def __call__(self, address: str, heartbeat: Heartbeat) -> Heartbeat:
        access = self._connection.access
        answer = await self._connection.ask(
            "POST",
            f"{self._scheme}://{address}/v1/ping",
            {},
            seconds=access.call_timeout,
            body=BytesIO(msgspec.json.encode(heartbeat)),
        )
        return decoded(answer, Heartbeat)
