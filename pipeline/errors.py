"""What goes wrong in a pipeline, by what is done about it."""

from changefeed.runtime.errors import UserError


class PipelineRefused(UserError):
    """A person has to change something first. The text is the advice."""
