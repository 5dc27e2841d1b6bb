"""Names that nothing else has: of writes, and of requests.

As of ``uuid4``, but without a call of the system for each, which may cost more than all else
that is done for a write: the beginning is random, and the rest counts.

Limits: of a virtual machine that is cloned as it runs, both copies go on with the same names.
"""

import os
from collections.abc import Callable
from itertools import count, repeat

_process = [""]


def _begin() -> None:
    _process[0] = os.urandom(10).hex()


_begin()
os.register_at_fork(after_in_child=_begin)
_names = map("{0[0]}{1:012x}".format, repeat(_process), count())
unique_name: Callable[[], str] = _names.__next__
"""Return another one, of 32 hexadecimal digits; in any thread."""
