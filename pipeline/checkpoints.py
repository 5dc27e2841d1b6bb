"""What Spark keeps in the checkpoint directory of a query, read without Spark.

``offsets/N`` is written before batch N is read, ``commits/N`` once it is done. Both are
text: a version, then lines of JSON, of which the last of an offset is that of the source.
"""

from dataclasses import dataclass
from pathlib import Path

from .errors import PipelineRefused
from .source.offsets import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The last batch that is done, and how far it got."""

    batch: int
    offset: Offset


def committed(checkpoint: str) -> Committed | None:
    """Return how far a query has got, ``None`` if it has finished no batch yet.

    Raise ``PipelineRefused`` for a checkpoint that is not on this machine, or not ours.
    """
    if "://" in checkpoint and not checkpoint.startswith("file://"):
        raise PipelineRefused(f"{checkpoint} is not on this machine, and cannot be read here")
    home = Path(checkpoint.removeprefix("file://"))
    batches = [int(x.name) for x in home.glob("commits/*") if x.name.isdigit()]
    if not batches:
        return None
    batch = max(batches)
    try:
        text = (home / "offsets" / str(batch)).read_text("utf-8")
    except OSError as error:
        raise PipelineRefused(f"the checkpoint {home} is damaged: {error}") from error
    return Committed(batch=batch, offset=Offset.of(text.splitlines()[-1]))
