"""Write the table anew: ``python -m tests.messages``."""

from .catalogue import PAGE, written

PAGE.write_text(written())
