"""``[backends.shelf]``: one section for the feed and the leases of this package."""

from pydantic import BaseModel, ConfigDict, Field


class ShelfSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    max_page: int = Field(default=10_000, ge=1)
    """No page of the feed has more changes."""
    lock_timeout: float = Field(default=5.0, gt=0)
    """Seconds to wait for another process that writes leases."""
