"""The etags that a request makes its condition."""

from dataclasses import dataclass

from cosmos_emulator.errors import CosmosError


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """If-Match and If-None-Match of a request; quotes around an etag do not matter."""

    if_match: str | None = None
    if_none_match: str | None = None

    def check_write(self, stored: str | None) -> None:
        """Raise 412 unless a write over what has this etag, if anything, is allowed."""
        if self.if_match is not None and not _matches(self.if_match, stored):
            raise CosmosError(
                412,
                "One of the specified pre-condition is not met: If-Match names another etag "
                "than the stored resource has. Read it again.",
            )
        if self.if_none_match is not None and _matches(self.if_none_match, stored):
            raise CosmosError(
                412, "One of the specified pre-condition is not met: the resource is there."
            )

    def is_unmodified(self, stored: str) -> bool:
        """Return whether a read may be answered with 304."""
        return self.if_none_match is not None and _matches(self.if_none_match, stored)


def _matches(wanted: str, stored: str | None) -> bool:
    if stored is None:
        return False
    return wanted.strip() == "*" or wanted.strip().strip('"') == stored.strip('"')
