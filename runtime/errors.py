"""How anything may end that a command does, beside what feeds, leases and observers raise."""


class UserError(Exception):
    """A person has to change something first. The text is the advice."""


class Failure(Exception):
    """It failed, and the same may work later."""
