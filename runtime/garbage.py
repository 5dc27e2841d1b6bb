"""When Python's garbage collector runs, and what it is asked to leave alone.

Its thresholds stay as they are: a host that reads 96 ranges takes no less CPU without it.
"""

import gc


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
