"""With which codes a process ends, so that its supervisor knows what to do."""

import signal
from typing import Final

FAILED: Final = 1
"""It failed, and the same command may work later: no answer came, the disk was full."""
USER_ERROR: Final = 2
"""A person has to change something first: a setting, a file, an observer, a name."""
STOOD_STILL: Final = 3
"""Its event loop stood still for longer than its leases live, so it ended itself."""
CLOSED_PIPE: Final = 128 + signal.SIGPIPE
"""Who read its output has enough of it; shells say it so."""
