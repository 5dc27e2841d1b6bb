"""Code that must not take a time that grows with the square of what it is given."""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def at_most_cpu_seconds(seconds: float) -> Iterator[None]:
    """Fail if the block keeps its thread busy for longer.

    Other threads do not count, nor does a garbage collection: it walks over all that the tests
    of this process have left.
    """
    gc.disable()
    began = time.thread_time()
    try:
        yield
        took = time.thread_time() - began
    finally:
        gc.enable()
    assert took < seconds, f"{took:.3f} s"
