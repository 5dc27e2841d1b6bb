"""What is said of pipeline."""

from typing import Final

from .table import Table

PIPELINE: Final = Table("The pipeline")
