"""Whether a host is ready to do its part in the fleet."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the readiness of a host is made of. Ages are in seconds."""

    joined: bool
    stopping: bool
    loop_blocked: bool
    last_listing: float | None

    def problems(self, *, longest_without_listing: float) -> list[str]:
        """Say what keeps the host from being ready, for people."""
        found = []
        if not self.joined:
            found.append("it has not joined the fleet yet")
        if self.stopping:
            found.append("it is stopping")
        if self.loop_blocked:
            found.append("user code blocks the event loop, which endangers renewals")
        if self.joined and (
            self.last_listing is None or self.last_listing > longest_without_listing
        ):
            found.append("the lease container does not answer")
        return found
