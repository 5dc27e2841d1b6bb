"""What goes wrong in a pipeline, by what is done about it."""


class PipelineRefused(Exception):
    """A person has to change something first. The text is the advice."""
