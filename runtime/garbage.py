"""What becomes of memory that is no longer used: Python's garbage collector, and ``malloc``.

The thresholds of the collector stay as they are: a host that reads 96 ranges takes no less CPU
without it.
"""

import ctypes
import gc
import os
from typing import Final

_KEPT: Final = 16 << 20
_LARGEST: Final = 8 << 20  # a page of Cosmos DB has 4 MB at most
_M_TRIM_THRESHOLD: Final = -1  # malloc.h of glibc
_M_MMAP_THRESHOLD: Final = -3


def pause_collections() -> None:
    """Collect no garbage until ``resume_collections``: imports make next to none of it, and
    collections among them take a tenth of the time until a host reads.
    """
    gc.disable()


def resume_collections() -> None:
    """Collect garbage again after a pause, but not among what was made in it.

    Where there was no pause, as in tests, do nothing.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def freeze_startup_objects() -> None:
    """Spare the garbage collector what modules and settings have made for good.

    A full collection walks over all of it and stops every thread for that long: with what we
    import some 70 ms, each time that something like a scrape makes many objects.
    """
    gc.collect()
    gc.freeze()


def keep_freed_buffers() -> None:
    """Let glibc keep 16 MiB of what is freed, for blocks of up to 8 MiB.

    Else it gives each page of changes back to the kernel, which clears the memory before the
    next page has it: a third of the CPU of a host that reads one range of Cosmos DB. Where
    ``malloc`` is another one, or the environment says how it is to be, do nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(x.startswith("MALLOC_") for x in os.environ):
        mallopt(_M_TRIM_THRESHOLD, _KEPT)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST)
