"""What was written to a lease container since, as its own change feed shows it.

A listing reads every lease; a question to the change feed that finds nothing reads none. What a
change feed does not show is deletes: see ``container``.

Credentials without the right to read the change feed are refused. Then more and more listings
pass before it is asked again: the right may be given later, and a refusal may pass.

A page that is not full is taken for the last one, so that at rest a look is one request. Should
the service have had more to say, the next look shows it.
"""

from collections.abc import Sequence

import msgspec

from changefeed.feeds.cosmos.client import Container
from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.requests import Requests
from changefeed.feeds.errors import FeedError, FeedRefused
from changefeed.feeds.feed import FeedRange, Position, RangeEnded, RangeId
from changefeed.stores.cosmos.items import Document

_PAGE = 1000
_MAX_PAGES = 100  # more than that is quicker listed whole
_MAX_REFUSALS = 9  # then it asks at every 512th listing: with 30 s of expiration, each 43 min
_Token = dict[RangeId, Position]


class LeaseChanges:
    """The documents of one container, of all prefixes, by when they were last written."""

    def __init__(self, container: Container) -> None:
        self._feed = CosmosFeed(Requests(container), mode="latest-version")
        self._refusals = 0  # one after the other
        self._to_skip = 0

    async def now(self) -> str | None:
        """Return a token from which on changes are shown; ``None`` if that cannot be had, as
        without the rights to read them.
        """
        if self._to_skip:
            self._to_skip -= 1
            return None
        try:
            token: _Token = {
                x.id: await self._feed.start(x, "now") for x in await self._feed.ranges()
            }
        except (FeedError, msgspec.ValidationError) as error:
            if isinstance(error, FeedRefused):
                self._refusals = min(self._refusals + 1, _MAX_REFUSALS)
                self._to_skip = 2**self._refusals - 1
            return None
        self._refusals = 0
        return msgspec.json.encode(token).decode()

    async def since(self, token: str) -> tuple[Sequence[Document], str] | None:
        """Return what was written since ``token`` was given, each document as it is by now,
        and the next token; ``None`` where a listing has to say it.
        """
        found: list[Document] = []
        after = msgspec.json.decode(token, type=_Token)
        pages = 0
        try:
            for range_id in after:
                while pages < _MAX_PAGES:
                    pages += 1
                    page = await self._feed.read(FeedRange(id=range_id), after[range_id], _PAGE)
                    after[range_id] = page.position
                    found += [msgspec.json.decode(x.body) for x in page.changes]
                    if len(page.changes) < _PAGE:
                        break
        except (FeedError, RangeEnded, msgspec.ValidationError):  # it may be split, too
            return None
        assert pages <= _MAX_PAGES, f"{pages} pages were asked for"
        if pages >= _MAX_PAGES:
            return None
        return found, msgspec.json.encode(after).decode()
