"""What the server said, before anybody made something of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from changefeed.feeds.cosmos.errors import BAD_REQUEST, GONE, THROTTLED

NOT_MODIFIED: Final = 304
_PAGES: Final = {200: b"{", NOT_MODIFIED: b""}  # what they begin with, by status
REPEATED: Final = (GONE, THROTTLED)  # what the client would ask for again and again
RECREATED: Final = 1024
CONTINUATION: Final = "x-ms-continuation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to one request of a client."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def substatus(self) -> int:
        return int(self.headers.get("x-ms-substatus") or 0)

    @property
    def etag(self) -> str:
        return self.headers.get("etag", "")

    @property
    def request_units(self) -> float:
        """What the request has cost."""
        return float(self.headers.get("x-ms-request-charge") or 0)

    @property
    def session(self) -> str | None:
        return self.headers.get("x-ms-session-token")

    @property
    def is_page(self) -> bool:
        """Whether it has changes or none, as far as can be seen, and says where it stands."""
        return bool(self.etag) and self.body[:1] == _PAGES.get(self.status)

    @property
    def is_ours(self) -> bool:
        """Whether it is for us to judge, and not for the client."""
        recreated = (self.status, self.substatus) == (BAD_REQUEST, RECREATED)
        return self.status < BAD_REQUEST or self.status in REPEATED or recreated

    @classmethod
    def of(cls, response: Any) -> "Answer":
        """Take the answer of a transport whole."""
        body = response.body() or b""
        return cls(status=response.status_code, headers=response.headers, body=body)
