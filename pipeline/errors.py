"""What goes wrong in a pipeline, by what is done about it."""


class PipelineRefused(Exception):
    """A person has to change something first. The text is the advice."""


class QueryFailed(Exception):
    """A table cannot be kept any further; a later start goes on where this one stood.

    ``refused``: but not before a person has changed something.
    """

    def __init__(self, table: str, reason: str, *, refused: bool = False) -> None:
        super().__init__(table, reason)
        self.table = table
        self.reason = reason
        self.refused = refused

    def __str__(self) -> str:
        return f"the table {self.table!r} cannot be kept: {self.reason}"
