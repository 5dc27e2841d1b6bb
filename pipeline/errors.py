"""What goes wrong in a pipeline, by what is done about it."""


class PipelineRefused(Exception):
    """A person has to change something first. The text is the advice."""


class QueryFailed(Exception):
    """A table cannot be kept any further; a later start goes on where this one stood."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(table, reason)  # args as given, so that it pickles
        self.table = table
        self.reason = reason

    def __str__(self) -> str:
        return f"the table {self.table!r} cannot be kept: {self.reason}"
