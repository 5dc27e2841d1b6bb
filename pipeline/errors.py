"""What goes wrong in a pipeline, by what is done about it."""

from changefeed.runtime.errors import Failure, UserError


class PipelineRefused(UserError):
    """A person has to change something first. The text is the advice."""


class QueryFailed(Failure):
    """A table cannot be kept any further; a later start resumes where this one stopped."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)
        self.table = table
        self.reason = reason

    def __str__(self) -> str:
        return f"the table {self.table!r} cannot be kept: {self.reason}"


class QueryRefused(QueryFailed, UserError):
    """The same, but a later start helps only if a person has changed something before."""
